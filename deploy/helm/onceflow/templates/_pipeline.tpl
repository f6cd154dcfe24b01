{{/* Where the pods see the files; every YAML file in it is a pipeline. */}}
{{- define "onceflow.pipelineFolder" -}}
/etc/onceflow/pipeline
{{- end -}}

{{/* Whether the example runs: if no file is given, and at an upgrade only if `example` is `always`. */}}
{{- define "onceflow.hasExample" -}}
{{- $wanted := or (eq .Values.example "always") (and (eq .Values.example "on-install") .Release.IsInstall) -}}
{{- $given := or .Values.pipelines .Values.files .Values.pipelinesFrom.configMap (include "onceflow.lightKindsGiven" .) .Values.gateways -}}
{{- if and $wanted (not $given) -}}true{{- end -}}
{{- end -}}

{{/* Whether there is a pipeline: a release may have other kinds of files alone. */}}
{{- define "onceflow.hasPipelines" -}}
{{- if include "onceflow.pipelineYamls" . | fromJsonArray -}}true{{- end -}}
{{- end -}}

{{/* Its pipeline, its ledger, and the beginning of its topics: two releases must not share one. */}}
{{- define "onceflow.exampleName" -}}
{{ .Release.Name | replace "." "-" }}-example
{{- end -}}

{{/* Names and texts of the pipelines, as a mapping in JSON. */}}
{{- define "onceflow.pipelines" -}}
{{- if include "onceflow.hasExample" . -}}
{{- $name := include "onceflow.exampleName" . -}}
{{ dict $name (.Files.Get "files/example.yaml" | replace "EXAMPLE" $name) | toJson }}
{{- else -}}
{{ .Values.pipelines | default dict | toJson }}
{{- end -}}
{{- end -}}

{{/* Names of the pipeline files, as a list in JSON. */}}
{{- define "onceflow.pipelineYamls" -}}
{{- $yamls := list -}}
{{- if .Values.pipelinesFrom.configMap -}}
{{- range .Values.pipelinesFrom.files -}}
{{- if hasSuffix ".yaml" . -}}{{- $yamls = append $yamls . -}}{{- end -}}
{{- end -}}
{{- else -}}
{{- range include "onceflow.pipelines" . | fromJson | keys | sortAlpha -}}{{- $yamls = append $yamls (printf "%s.yaml" .) -}}{{- end -}}
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
{{- range $name, $text := include "onceflow.pipelines" . | fromJson -}}
{{- $_ := set $found $name (get (fromYaml $text) "checkpoint" | default (printf "%s/%s" (include "onceflow.checkpointRoot" $ | trimSuffix "/") $name)) -}}
{{- end -}}
{{- end -}}
{{ toJson $found }}
{{- end -}}

{{/* Data of the ConfigMap. The texts stay as they are, so that faults name the right lines. */}}
{{- define "onceflow.pipelineData" -}}
{{- $data := deepCopy .Values.files -}}
{{- $checkpoints := include "onceflow.checkpoints" . | fromJson -}}
{{- range $name, $text := include "onceflow.pipelines" . | fromJson -}}
{{- if not (hasKey (fromYaml $text) "checkpoint") -}}
{{- $text = printf "%s\ncheckpoint: %s\n" (trimSuffix "\n" $text) (get $checkpoints $name) -}}
{{- end -}}
{{- $_ := set $data (printf "%s.yaml" $name) $text -}}
{{- end -}}
{{- toYaml $data -}}
{{- end -}}
