{{/* Settings of the connection, as in onceflow.yaml. `sasl` may be another one's. */}}
{{- define "onceflow.connectionSettings" -}}
bootstrap_servers: {{ .kafka.bootstrapServers | quote }}
{{- with .sasl }}
{{- if .mechanism }}
sasl:
  mechanism: {{ .mechanism }}
  {{- if eq .mechanism "OAUTHBEARER" }}
  token_endpoint: {{ .tokenEndpoint | quote }}
  client_id: {{ .username | quote }}
  client_secret_file: /etc/onceflow/sasl/{{ .passwordKey }}
  {{- with .scope }}
  scope: {{ . | quote }}
  {{- end }}
  {{- else }}
  username: {{ .username | quote }}
  password_file: /etc/onceflow/sasl/{{ .passwordKey }}
  {{- end }}
  {{- if .allowClearText }}
  allow_clear_text: true
  {{- end }}
{{- end }}
{{- end }}
{{- with .kafka.tls }}
{{- if .enabled }}
{{- if not (or .caSecret .certificateSecret) }}
tls: {}
{{- else }}
tls:
  {{- if .caSecret }}
  ca_file: /etc/onceflow/ca/{{ .caKey }}
  {{- end }}
  {{- if .certificateSecret }}
  certificate_file: /etc/onceflow/certificate/{{ .certificateKey }}
  key_file: /etc/onceflow/certificate/{{ .keyKey }}
  {{- if .keyPasswordKey }}
  key_password_file: /etc/onceflow/certificate/{{ .keyPasswordKey }}
  {{- end }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- with .kafka.client }}
client:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Settings of Spark that the chart decides; a user's take their place, `false` and 0 as well. */}}
{{- define "onceflow.sparkConf" -}}
spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage: "true"
spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB: {{ include "onceflow.mebibytes" (dict "name" "memory.state" "text" .Values.memory.state) | quote }}
{{- if eq .Values.mode "k8s" }}
{{ include "onceflow.clusterConf" . }}
{{ include "onceflow.clientModeConf" . }}
{{- end }}
{{- end -}}

{{/* Settings as Spark takes them. Helm reads whole numbers as fractions, which would become 1e+06. */}}
{{- define "onceflow.asText" -}}
{{- $text := dict -}}
{{- range $name, $value := . -}}
{{- if and (kindIs "float64" $value) (eq $value (floor $value)) -}}{{- $value = int64 $value -}}{{- end -}}
{{- $_ := set $text $name (toString $value) -}}
{{- end -}}
{{- toYaml $text -}}
{{- end -}}

{{- define "onceflow.master" -}}
{{- if eq .Values.mode "local" -}}
local[{{ .Values.spark.cores }}]
{{- else -}}
k8s://https://kubernetes.default.svc:443
{{- end -}}
{{- end -}}

{{- define "onceflow.settings" -}}
{{ include "onceflow.connectionSettings" (dict "kafka" .Values.kafka "sasl" .Values.kafka.sasl) }}
spark:
  master: {{ include "onceflow.master" . }}
  driver_memory: {{ .Values.spark.heap }}
  shuffle_partitions: {{ .Values.spark.shufflePartitions }}
  max_result_bytes: {{ .Values.spark.maxResult }}
  conf:
    {{- include "onceflow.asText" (mergeOverwrite (include "onceflow.sparkConf" . | fromYaml) .Values.spark.conf) | nindent 4 }}
transaction_timeout: {{ .Values.kafka.transactionTimeout | quote }}
transforms: {{ .Values.transforms }}
{{- with .Values.persistence.ephemeral }}
{{- if .reason }}
ephemeral_checkpoints: {reason: {{ .reason | quote }}, until: {{ .until | quote }}}
{{- end }}
{{- end }}
checkpoint_root: {{ include "onceflow.checkpointRoot" . | quote }}
monitoring: {address: 0.0.0.0, port: {{ .Values.monitoring.port }}}
{{- with .Values.control }}
{{- if .enabled }}
control:
  address: {{ ternary "0.0.0.0" "127.0.0.1" (ne .certificateSecret "") }}
  port: {{ .port }}
  tokens_file: /etc/onceflow/tokens/{{ .tokensKey }}
  {{- with .trustedProxies }}
  trusted_proxies: {{ toJson . }}
  {{- end }}
  {{- with .shownColumns }}
  shown_columns: {{ toJson . }}
  {{- end }}
  {{- if .certificateSecret }}
  certificate_file: /etc/onceflow/control/tls.crt
  key_file: /etc/onceflow/control/tls.key
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Data of the ConfigMap that the driver reads. */}}
{{- define "onceflow.settingsData" -}}
onceflow.yaml: |
  {{- include "onceflow.settings" . | nindent 2 }}
{{- if include "onceflow.lightKindsGiven" . }}
# Of processes without Spark.
light.yaml: |
  {{- include "onceflow.lightSettings" . | nindent 2 }}
{{- end }}
{{- if .Values.gateways }}
# Of gateways.
gateway.yaml: |
  {{- include "onceflow.gatewaySettings" . | nindent 2 }}
{{- end }}
{{- if .Values.tests.enabled }}
# Of the round trip, which runs on one core with a checkpoint of its own.
connection.yaml: |
  {{- include "onceflow.connectionSettings" (dict "kafka" .Values.kafka "sasl" .Values.kafka.sasl) | nindent 2 }}
{{- end }}
{{- if eq .Values.mode "k8s" }}
executor.yaml: |
  apiVersion: v1
  kind: Pod
  {{- include "onceflow.executorPod" . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Ports of the brokers, as a list in JSON. */}}
{{- define "onceflow.brokerPorts" -}}
{{- $ports := list -}}
{{- range splitList "," .Values.kafka.bootstrapServers -}}
{{- $ports = append $ports (regexFind "[0-9]+$" . | int) -}}
{{- end -}}
{{- range .Values.networkPolicy.brokerPorts -}}
{{- $ports = append $ports (int .) -}}
{{- end -}}
{{- uniq $ports | toJson -}}
{{- end -}}
