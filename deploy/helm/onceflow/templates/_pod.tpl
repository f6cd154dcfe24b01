{{- define "onceflow.env" -}}
{{ include "onceflow.envWith" (dict "file" "onceflow.yaml" "more" .Values.extraEnv) }}
{{- end -}}

{{/* Of the container that runs pipelines, and of no other. */}}
{{- define "onceflow.driverEnv" -}}
{{ include "onceflow.env" . }}
{{- if .Values.objectStore.existingSecret }}
- {name: AWS_SHARED_CREDENTIALS_FILE, value: /etc/onceflow/object-store/credentials}
{{- end }}
{{- end -}}

{{- define "onceflow.envWith" -}}
- {name: ONCEFLOW_CONFIG, value: /etc/onceflow/settings/{{ .file }}}
- {name: HOME, value: /tmp}
{{- with .more }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Of the Secret with the password, if there is one. */}}
{{- define "onceflow.saslMount" -}}
{{- if . }}
- {name: sasl, mountPath: /etc/onceflow/sasl, readOnly: true}
{{- end }}
{{- end -}}

{{- define "onceflow.saslVolume" -}}
{{- if . }}
- {name: sasl, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- end -}}

{{- define "onceflow.tlsMounts" -}}
{{- if .enabled }}
{{- if .caSecret }}
- {name: ca, mountPath: /etc/onceflow/ca, readOnly: true}
{{- end }}
{{- if .certificateSecret }}
- {name: certificate, mountPath: /etc/onceflow/certificate, readOnly: true}
{{- end }}
{{- end }}
{{- end -}}

{{- define "onceflow.tlsVolumes" -}}
{{- if .enabled }}
{{- if .caSecret }}
- {name: ca, secret: {secretName: {{ .caSecret }}, defaultMode: 0440}}
{{- end }}
{{- if .certificateSecret }}
- {name: certificate, secret: {secretName: {{ .certificateSecret }}, defaultMode: 0440}}
{{- end }}
{{- end }}
{{- end -}}

{{/* Of every process with a connection. `sasl` is the name of the Secret, and may be empty. */}}
{{- define "onceflow.connectionMounts" -}}
{{- include "onceflow.saslMount" .sasl }}
{{- include "onceflow.tlsMounts" .tls }}
{{- end -}}

{{- define "onceflow.connectionVolumes" -}}
{{- include "onceflow.saslVolume" .sasl }}
{{- include "onceflow.tlsVolumes" .tls }}
{{- end -}}

{{/* Each file by itself: the links of a mounted ConfigMap would change where the pipeline lies. */}}
{{- define "onceflow.pipelineMounts" -}}
{{- range include "onceflow.pipelineFiles" . | fromJsonArray }}
- {name: pipeline, mountPath: /etc/onceflow/pipeline/{{ . }}, subPath: {{ . }}, readOnly: true}
{{- end }}
{{- end -}}

{{/* Of every process that computes. Executors get the password from the driver, not as a file. */}}
{{- define "onceflow.sharedMounts" -}}
{{- include "onceflow.pipelineMounts" . }}
{{- include "onceflow.tlsMounts" .Values.kafka.tls }}
{{- if include "onceflow.hasExecutors" . }}
- {name: spark, mountPath: /etc/onceflow/spark, readOnly: true}
{{- end }}
{{- if or .Values.persistence.enabled .Values.persistence.ephemeral.reason }}
- {name: checkpoints, mountPath: {{ include "onceflow.checkpointFolder" . }}}
{{- end }}
{{- include "onceflow.userMounts" . }}
{{- end -}}

{{/* Of every container of the chart. */}}
{{- define "onceflow.userMounts" -}}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "onceflow.sharedVolumes" -}}
- {name: pipeline, configMap: {name: {{ include "onceflow.pipelineConfigMap" . }}}}
{{- include "onceflow.tlsVolumes" .Values.kafka.tls }}
{{- if include "onceflow.hasExecutors" . }}
- {name: spark, secret: {secretName: {{ .Values.executors.secret }}, defaultMode: 0440}}
{{- end }}
{{- if and .Values.persistence.enabled .Values.persistence.existingClaim }}
- {name: checkpoints, persistentVolumeClaim: {claimName: {{ .Values.persistence.existingClaim }}}}
{{- end }}
{{- if .Values.persistence.ephemeral.reason }}
- {name: checkpoints, emptyDir: {sizeLimit: {{ .Values.persistence.size }}}}
{{- end }}
{{- end -}}

{{/* Those of the user's volumes that containers of the chart mount; sidecars may have others. */}}
{{- define "onceflow.mountedVolumes" -}}
{{- $mounted := list -}}
{{- range .Values.extraVolumeMounts }}{{ $mounted = append $mounted .name }}{{ end -}}
{{- range .Values.extraVolumes }}
{{- if has .name $mounted }}
{{ toYaml (list .) }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "onceflow.mounts" -}}
- {name: scratch, mountPath: /tmp}
- {name: settings, mountPath: /etc/onceflow/settings, readOnly: true}
{{- if include "onceflow.hasExecutors" . }}
- {name: account, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}
{{- include "onceflow.saslMount" .Values.kafka.sasl.existingSecret }}
{{- if .Values.objectStore.existingSecret }}
- {name: object-store, mountPath: /etc/onceflow/object-store, readOnly: true}
{{- end }}
{{- with .Values.control }}
{{- if .enabled }}
- {name: tokens, mountPath: /etc/onceflow/tokens, readOnly: true}
{{- if .certificateSecret }}
- {name: control, mountPath: /etc/onceflow/control, readOnly: true}
{{- end }}
{{- end }}
{{- end }}
{{- include "onceflow.sharedMounts" . }}
{{- end -}}

{{- define "onceflow.volumes" -}}
- {name: scratch, emptyDir: {sizeLimit: {{ .Values.scratch.sizeLimit }}}}
- {name: settings, configMap: {name: {{ include "onceflow.fullname" . }}-settings}}
{{- if include "onceflow.hasExecutors" . }}
# What the kubelet would mount into every container of the pod; sidecars have no use of it.
- name: account
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}
{{- include "onceflow.saslVolume" .Values.kafka.sasl.existingSecret }}
{{- with .Values.objectStore.existingSecret }}
- {name: object-store, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- with .Values.control }}
{{- if .enabled }}
- {name: tokens, secret: {secretName: {{ .tokensSecret }}, defaultMode: 0440}}
{{- if .certificateSecret }}
- {name: control, secret: {secretName: {{ .certificateSecret }}, defaultMode: 0440}}
{{- end }}
{{- end }}
{{- end }}
{{ include "onceflow.sharedVolumes" . }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The pod restarts when what it read at its start has changed. */}}
{{- define "onceflow.podMetadata" -}}
annotations:
  checksum/settings: {{ include "onceflow.settingsData" . | sha256sum }}
  {{- if .Values.pipelinesFrom.configMap }}
  checksum/pipeline: {{ .Values.pipelinesFrom.revision | sha256sum }}
  {{- else }}
  checksum/pipeline: {{ include "onceflow.pipelineData" . | sha256sum }}
  {{- end }}
  {{- with .Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
labels:
  {{- include "onceflow.driverLabels" . | nindent 2 }}
  {{- with .Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* What every pod of the release has, whatever runs in it; with `ownTolerations` besides the user's. */}}
{{- define "onceflow.podBasics" -}}
# Variables named after services would be taken for settings: ONCEFLOW_PORT is one of them.
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {name: {{ . }}}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat .Values.tolerations (default list .ownTolerations) }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.affinity }}
affinity:
  {{- toYaml .Values.affinity | nindent 2 }}
{{- else if .Values.standby }}
# The pod that stands by does not go with the other one's node.
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "onceflow.driverLabels" . | nindent 14 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* A constraint without a selector would choose no pod, so it gets the labels of the pods that it is for. */}}
{{- define "onceflow.spread" -}}
{{- if .constraints -}}
topologySpreadConstraints:
  {{- range .constraints }}
  {{- $ours := dict "labelSelector" (dict "matchLabels" (fromYaml $.labels)) }}
  {{- toYaml (list (ternary . (merge $ours .) (hasKey . "labelSelector"))) | nindent 2 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* A user's containers, kept to the restricted standard by what ours have unless they say otherwise. */}}
{{- define "onceflow.userContainers" -}}
{{- range .containers }}
{{- $context := mergeOverwrite (deepCopy $.securityContext) (.securityContext | default dict) }}
{{ toYaml (list (mergeOverwrite (deepCopy .) (dict "securityContext" $context))) }}
{{- end }}
{{- end -}}

{{- define "onceflow.container" -}}
image: {{ include "onceflow.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- end -}}

{{/* Ports and probes of the container that runs the service. It is not killed while brokers do not answer. */}}
{{- define "onceflow.answers" -}}
ports:
  - {name: monitoring, containerPort: {{ .Values.monitoring.port }}}
  {{- if and .Values.control.enabled .Values.control.certificateSecret }}
  - {name: control, containerPort: {{ .Values.control.port }}}
  {{- end }}
{{ include "onceflow.probes" . }}
{{- end -}}

{{/* The same for a container that takes no orders. */}}
{{- define "onceflow.monitored" -}}
ports:
  - {name: monitoring, containerPort: {{ .Values.monitoring.port }}}
{{ include "onceflow.probes" . }}
{{- end -}}

{{- define "onceflow.probes" -}}
# Five minutes to import and to answer, on a node that is short of everything.
startupProbe:
  httpGet: {path: /livez, port: monitoring}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 60
  terminationGracePeriodSeconds: 5
# What hangs is killed after at most 5 * 5 s for probes, 5 s for the last answer and 5 s of grace, as it does
# not hear SIGTERM: so it is back within a minute.
livenessProbe:
  httpGet: {path: /livez, port: monitoring}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 5
  terminationGracePeriodSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: monitoring}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

{{- define "onceflow.claimSpec" -}}
accessModes: [{{ .Values.persistence.accessMode }}]
{{- with .Values.persistence.storageClass }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests:
    storage: {{ .Values.persistence.size }}
{{- end -}}
