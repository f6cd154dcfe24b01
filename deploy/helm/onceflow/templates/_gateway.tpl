{{/* Of the pods that run a gateway: (dict "root" . "name" "shop"). */}}
{{- define "onceflow.gatewayLabels" -}}
{{ include "onceflow.selectorLabels" .root }}
app.kubernetes.io/component: gateways
onceflow/gateway: {{ .name }}
{{- end -}}

{{- define "onceflow.gatewayName" -}}
{{ include "onceflow.fullname" .root }}-gateway-{{ .name }}
{{- end -}}

{{- define "onceflow.gatewayScheme" -}}
{{ ternary "https" "http" (ne .Values.gateway.certificateSecret "") }}
{{- end -}}

{{/* Settings of such a process. */}}
{{- define "onceflow.gatewaySettings" -}}
{{ include "onceflow.connectionSettings" (dict "kafka" .Values.kafka "sasl" .Values.kafka.sasl) }}
transaction_timeout: {{ .Values.kafka.transactionTimeout | quote }}
monitoring: {address: 0.0.0.0, port: {{ .Values.monitoring.port }}}
gateway:
  address: 0.0.0.0
  port: {{ .Values.gateway.port }}
  tokens_file: /etc/onceflow/tokens/{{ .Values.gateway.tokensKey }}
  {{- if .Values.gateway.certificateSecret }}
  certificate_file: /etc/onceflow/gateway/tls.crt
  key_file: /etc/onceflow/gateway/tls.key
  ca_file: /etc/onceflow/gateway/ca.crt
  {{- else }}
  allow_clear_text: true
  {{- end }}
{{- end -}}

{{- define "onceflow.gatewayMounts" -}}
- {name: scratch, mountPath: /tmp}
- {name: settings, mountPath: /etc/onceflow/settings, readOnly: true}
- {name: files, mountPath: /etc/onceflow/gateways/{{ .name }}.yaml, subPath: {{ .name }}.yaml, readOnly: true}
- {name: tokens, mountPath: /etc/onceflow/tokens, readOnly: true}
{{- if .root.Values.gateway.certificateSecret }}
- {name: gateway, mountPath: /etc/onceflow/gateway, readOnly: true}
{{- end }}
{{- include "onceflow.connectionMounts" (dict "sasl" .root.Values.kafka.sasl.existingSecret "tls" .root.Values.kafka.tls) }}
{{- include "onceflow.userMounts" .root }}
{{- end -}}

{{- define "onceflow.gatewayVolumes" -}}
- {name: scratch, emptyDir: {sizeLimit: {{ .root.Values.gateway.scratch }}}}
- {name: settings, configMap: {name: {{ include "onceflow.fullname" .root }}-settings}}
- {name: files, configMap: {name: {{ include "onceflow.fullname" .root }}-gateways}}
- {name: tokens, secret: {secretName: {{ .root.Values.gateway.tokensSecret }}, defaultMode: 0440}}
{{- with .root.Values.gateway.certificateSecret }}
- {name: gateway, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- include "onceflow.connectionVolumes" (dict "sasl" .root.Values.kafka.sasl.existingSecret "tls" .root.Values.kafka.tls) }}
{{- include "onceflow.mountedVolumes" .root }}
{{- end -}}

{{/* It is ready when every slot has an owner, which its own port tells. */}}
{{- define "onceflow.gatewayAnswers" -}}
ports:
  - {name: monitoring, containerPort: {{ .Values.monitoring.port }}}
  - {name: gateway, containerPort: {{ .Values.gateway.port }}}
{{- $probes := include "onceflow.probes" . | fromYaml }}
{{- $ready := dict "path" "/readyz" "port" "gateway" "scheme" (include "onceflow.gatewayScheme" . | upper) }}
{{- $_ := set $probes.readinessProbe "httpGet" $ready }}
{{ toYaml $probes }}
{{- end -}}
