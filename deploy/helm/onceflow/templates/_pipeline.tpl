{{/* Name of the pipeline file; the folder is always the same. */}}
{{- define "onceflow.pipelineFile" -}}
{{- if .Values.pipelinesFrom.configMap -}}
{{ first .Values.pipelinesFrom.files }}
{{- else -}}
{{ keys .Values.pipelines | first }}.yaml
{{- end -}}
{{- end -}}

{{- define "onceflow.pipelinePath" -}}
/etc/onceflow/pipeline/{{ include "onceflow.pipelineFile" . }}
{{- end -}}

{{- define "onceflow.pipelineConfigMap" -}}
{{ .Values.pipelinesFrom.configMap | default (printf "%s-pipeline" (include "onceflow.fullname" .)) }}
{{- end -}}

{{/* Names of the files that the pods see, as a list in JSON. */}}
{{- define "onceflow.pipelineFiles" -}}
{{- if .Values.pipelinesFrom.configMap -}}
{{ toJson .Values.pipelinesFrom.files }}
{{- else -}}
{{ concat (list (include "onceflow.pipelineFile" .)) (keys .Values.files | sortAlpha) | toJson }}
{{- end -}}
{{- end -}}

{{- define "onceflow.checkpointFolder" -}}
/var/lib/onceflow/checkpoints
{{- end -}}

{{/* Where the pipeline's checkpoint is; empty if an existing ConfigMap does not tell. */}}
{{- define "onceflow.checkpoint" -}}
{{- if .Values.pipelinesFrom.configMap -}}
{{ .Values.pipelinesFrom.checkpoint }}
{{- else -}}
{{- range $name, $text := .Values.pipelines -}}
{{ get (fromYaml $text) "checkpoint" | default (printf "%s/%s" (include "onceflow.checkpointFolder" $) $name) }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Data of the ConfigMap. The text stays as it is, so that faults name the right lines. */}}
{{- define "onceflow.pipelineData" -}}
{{- $data := deepCopy .Values.files -}}
{{- range $name, $text := .Values.pipelines -}}
{{- if not (hasKey (fromYaml $text) "checkpoint") -}}
{{- $text = printf "%s\ncheckpoint: %s\n" (trimSuffix "\n" $text) (include "onceflow.checkpoint" $) -}}
{{- end -}}
{{- $_ := set $data (printf "%s.yaml" $name) $text -}}
{{- end -}}
{{- toYaml $data -}}
{{- end -}}
