{{/* Where the pods see the files; every YAML file in it is a pipeline. */}}
{{- define "onceflow.pipelineFolder" -}}
/etc/onceflow/pipeline
{{- end -}}

{{/* Names of the pipeline files, as a list in JSON. */}}
{{- define "onceflow.pipelineYamls" -}}
{{- $yamls := list -}}
{{- if .Values.pipelinesFrom.configMap -}}
{{- range .Values.pipelinesFrom.files -}}
{{- if hasSuffix ".yaml" . -}}{{- $yamls = append $yamls . -}}{{- end -}}
{{- end -}}
{{- else -}}
{{- range keys (.Values.pipelines | default dict) | sortAlpha -}}{{- $yamls = append $yamls (printf "%s.yaml" .) -}}{{- end -}}
{{- end -}}
{{ toJson $yamls }}
{{- end -}}

{{- define "onceflow.pipelineConfigMap" -}}
{{ .Values.pipelinesFrom.configMap | default (printf "%s-pipeline" (include "onceflow.fullname" .)) }}
{{- end -}}

{{/* Names of the files that the pods see, as a list in JSON. */}}
{{- define "onceflow.pipelineFiles" -}}
{{- if .Values.pipelinesFrom.configMap -}}
{{ toJson .Values.pipelinesFrom.files }}
{{- else -}}
{{ concat (include "onceflow.pipelineYamls" . | fromJsonArray) (keys (.Values.files | default dict) | sortAlpha) | toJson }}
{{- end -}}
{{- end -}}

{{- define "onceflow.checkpointFolder" -}}
/var/lib/onceflow/checkpoints
{{- end -}}

{{/* Below which the service lets checkpoints lie. */}}
{{- define "onceflow.checkpointRoot" -}}
{{ .Values.checkpointRoot | default .Values.pipelinesFrom.checkpoint | default (include "onceflow.checkpointFolder" .) }}
{{- end -}}

{{/* Where each pipeline's checkpoint is, as a mapping in JSON; empty if a ConfigMap does not tell. */}}
{{- define "onceflow.checkpoints" -}}
{{- $found := dict -}}
{{- if .Values.pipelinesFrom.configMap -}}
{{- with .Values.pipelinesFrom.checkpoint -}}{{- $_ := set $found "pipelinesFrom" . -}}{{- end -}}
{{- else -}}
{{- range $name, $text := .Values.pipelines -}}
{{- $_ := set $found $name (get (fromYaml $text) "checkpoint" | default (printf "%s/%s" (include "onceflow.checkpointFolder" $) $name)) -}}
{{- end -}}
{{- end -}}
{{ toJson $found }}
{{- end -}}

{{/* Data of the ConfigMap. The texts stay as they are, so that faults name the right lines. */}}
{{- define "onceflow.pipelineData" -}}
{{- $data := deepCopy .Values.files -}}
{{- $checkpoints := include "onceflow.checkpoints" . | fromJson -}}
{{- range $name, $text := .Values.pipelines -}}
{{- if not (hasKey (fromYaml $text) "checkpoint") -}}
{{- $text = printf "%s\ncheckpoint: %s\n" (trimSuffix "\n" $text) (get $checkpoints $name) -}}
{{- end -}}
{{- $_ := set $data (printf "%s.yaml" $name) $text -}}
{{- end -}}
{{- toYaml $data -}}
{{- end -}}
