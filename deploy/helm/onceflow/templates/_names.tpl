{{- define "onceflow.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "onceflow.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Of the pod that runs the pipeline. */}}
{{- define "onceflow.driverLabels" -}}
{{ include "onceflow.selectorLabels" . }}
app.kubernetes.io/component: driver
{{- end -}}

{{- define "onceflow.labels" -}}
{{ include "onceflow.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "onceflow.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "onceflow.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "onceflow.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether pods besides the driver's compute. */}}
{{- define "onceflow.hasExecutors" -}}
{{- if ne .Values.mode "local" -}}true{{- end -}}
{{- end -}}

{{/* An amount of memory in bytes: as Kubernetes, Java or our settings write it. */}}
{{- define "onceflow.bytes" -}}
{{- $units := dict "" 1 "k" 1024 "m" 1048576 "g" 1073741824 -}}
{{- $text := .text | toString | lower | replace " " "" | trimSuffix "b" | trimSuffix "i" -}}
{{- if not (regexMatch "^[0-9]+[kmg]?$" $text) -}}
{{- fail (printf "%s: not an amount of memory; expected a whole number and a unit, such as 4Gi; found %v" .name .text) -}}
{{- end -}}
{{- mul (regexFind "^[0-9]+" $text | int64) (get $units (regexFind "[kmg]$" $text)) -}}
{{- end -}}

{{- define "onceflow.mebibytes" -}}
{{- div (include "onceflow.bytes" . | int64) 1048576 -}}
{{- end -}}

{{- define "onceflow.testPrefix" -}}
{{- .Values.tests.prefix | default (printf "%s-helm-test" .Release.Name) -}}
{{- end -}}
