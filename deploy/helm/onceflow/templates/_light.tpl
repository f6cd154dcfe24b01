{{/* Kinds of files that need no Spark, each with its value: a Deployment runs all files of a kind. */}}
{{- define "onceflow.lightKinds" -}}
{{ dict "delivery" "deliveries" "enrichment" "enrichments" | toJson }}
{{- end -}}

{{/* Those of which there are files, as a mapping in JSON; empty text if there are none. */}}
{{- define "onceflow.lightKindsGiven" -}}
{{- $found := dict -}}
{{- range $kind, $value := include "onceflow.lightKinds" . | fromJson -}}
{{- if get $.Values $value -}}{{- $_ := set $found $kind $value -}}{{- end -}}
{{- end -}}
{{- if $found -}}{{ toJson $found }}{{- end -}}
{{- end -}}

{{/* Of the pods that run files of a kind: (dict "root" . "value" "deliveries"). */}}
{{- define "onceflow.lightLabels" -}}
{{ include "onceflow.selectorLabels" .root }}
app.kubernetes.io/component: {{ .value }}
{{- end -}}

{{/* Data of the ConfigMap of a kind. */}}
{{- define "onceflow.lightData" -}}
{{- $data := dict -}}
{{- range $name, $text := get .root.Values .value -}}
{{- $_ := set $data (printf "%s.yaml" $name) $text -}}
{{- end -}}
{{- toYaml $data -}}
{{- end -}}

{{/* Settings of such a process. */}}
{{- define "onceflow.lightSettings" -}}
{{ include "onceflow.connectionSettings" (dict "kafka" .Values.kafka "sasl" .Values.kafka.sasl) }}
transaction_timeout: {{ .Values.kafka.transactionTimeout | quote }}
transforms: {{ .Values.transforms }}
monitoring: {address: 0.0.0.0, port: {{ .Values.monitoring.port }}}
{{- end -}}

{{- define "onceflow.lightMounts" -}}
- {name: scratch, mountPath: /tmp}
- {name: settings, mountPath: /etc/onceflow/settings, readOnly: true}
{{- range $name, $_ := get .root.Values .value }}
- {name: files, mountPath: /etc/onceflow/{{ $.value }}/{{ $name }}.yaml, subPath: {{ $name }}.yaml, readOnly: true}
{{- end }}
{{- range .root.Values.light.secrets }}
- {name: secret-{{ . }}, mountPath: /etc/onceflow/secrets/{{ . }}, readOnly: true}
{{- end }}
{{- include "onceflow.connectionMounts" (dict "sasl" .root.Values.kafka.sasl.existingSecret "tls" .root.Values.kafka.tls) }}
{{- include "onceflow.userMounts" .root }}
{{- end -}}

{{- define "onceflow.lightVolumes" -}}
- {name: scratch, emptyDir: {sizeLimit: {{ .root.Values.light.scratch }}}}
- {name: settings, configMap: {name: {{ include "onceflow.fullname" .root }}-settings}}
- {name: files, configMap: {name: {{ include "onceflow.fullname" .root }}-{{ .value }}}}
{{- range .root.Values.light.secrets }}
- {name: secret-{{ . }}, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- include "onceflow.connectionVolumes" (dict "sasl" .root.Values.kafka.sasl.existingSecret "tls" .root.Values.kafka.tls) }}
{{- include "onceflow.mountedVolumes" .root }}
{{- end -}}
