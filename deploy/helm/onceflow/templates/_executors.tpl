{{/* Of both modes with executors: they talk in secret, and leave nothing readable on the node. One that is to go,
     as its node is drained or it was idle, ends its tasks and hands over what it has shuffled. */}}
{{- define "onceflow.clusterConf" -}}
spark.authenticate: "true"
# Else Spark writes it into the specification of every executor's pod, for all to read who may list pods.
spark.authenticate.secret.file: /etc/onceflow/spark/{{ .Values.executors.secretKey }}
spark.network.crypto.enabled: "true"
spark.io.encryption.enabled: "true"
spark.blockManager.port: {{ .Values.ports.blockManager | quote }}
spark.decommission.enabled: "true"
spark.driver.port: {{ .Values.ports.driver | quote }}
{{- with .Values.executors.dynamic.max }}
spark.dynamicAllocation.enabled: "true"
spark.dynamicAllocation.executorIdleTimeout: {{ $.Values.executors.dynamic.idle }}
spark.dynamicAllocation.maxExecutors: {{ . | quote }}
spark.dynamicAllocation.minExecutors: {{ $.Values.executors.instances | quote }}
spark.dynamicAllocation.shuffleTracking.enabled: "true"
# Shuffle data is useless once its batch is committed; Spark would keep it forever.
spark.dynamicAllocation.shuffleTracking.timeout: {{ $.Values.executors.dynamic.idle }}
{{- end }}
spark.kubernetes.decommission.script: onceflow-drain
# To end its tasks and hand over its shuffle data; Spark's 30 s are not enough on a busy node.
spark.kubernetes.executor.terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds | quote }}
spark.kubernetes.executor.volumes.emptyDir.spark-local-dir-1.mount.path: /var/spark
spark.kubernetes.executor.volumes.emptyDir.spark-local-dir-1.options.sizeLimit: {{ .Values.scratch.sizeLimit }}
spark.storage.decommission.enabled: "true"
# An executor ends once it has looked for blocks to hand over after its last task. Spark looks every 30 s.
spark.storage.decommission.replicationReattemptInterval: 3s
{{- end -}}

{{/* What an operator would tell Spark. The name of the application begins the names of executors, and Spark
     adds what is unique: a driver that starts again finds no name taken. */}}
{{- define "onceflow.clientModeConf" -}}
{{- $name := include "onceflow.fullname" . -}}
spark.app.name: {{ $name }}
spark.driver.bindAddress: 0.0.0.0
spark.driver.host: {{ $name }}-0.{{ $name }}.{{ .Release.Namespace }}.svc
spark.executor.cores: {{ .Values.executors.cores | quote }}
spark.executor.instances: {{ .Values.executors.instances | quote }}
spark.executor.memory: {{ .Values.executors.heap }}
spark.executor.memoryOverhead: {{ .Values.executors.memoryOverhead }}
spark.kubernetes.container.image: {{ include "onceflow.image" . }}
spark.kubernetes.container.image.pullPolicy: {{ .Values.image.pullPolicy }}
spark.kubernetes.driver.pod.name: {{ $name }}-0
spark.kubernetes.executor.podTemplateContainerName: spark-kubernetes-executor
spark.kubernetes.executor.podTemplateFile: /etc/onceflow/settings/executor.yaml
{{- with .Values.executors.requestCores }}
spark.kubernetes.executor.request.cores: {{ . | quote }}
{{- end }}
spark.kubernetes.namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* The claim of the checkpoint, by the name that the StatefulSet gives it. */}}
{{- define "onceflow.claim" -}}
{{ .Values.persistence.existingClaim | default (printf "checkpoints-%s-0" (include "onceflow.fullname" .)) }}
{{- end -}}

{{/* What all executors of the release have: labels of their template, and as a selector with Spark's own. */}}
{{- define "onceflow.executorLabels" -}}
{{ include "onceflow.selectorLabels" . }}
app.kubernetes.io/component: executor
{{- end -}}

{{- define "onceflow.executorSelector" -}}
{{ include "onceflow.executorLabels" . | replace ": " "=" | replace "\n" "," }},spark-role=executor
{{- end -}}

{{/* Spark replaces an executor once its pod is to be deleted. On a node that does not answer, Kubernetes would wait five
     minutes with that, also for a pod that was put there a moment before the node was known to be lost. */}}
{{- define "onceflow.executorTolerations" -}}
- {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
- {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
{{- end -}}

{{/* What executors share with the driver: code of the pipeline, Secrets, and the checkpoint. */}}
{{- define "onceflow.executorPod" -}}
metadata:
  labels:
    {{- include "onceflow.executorLabels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- $tolerations := include "onceflow.executorTolerations" . | fromYamlArray }}
  {{- include "onceflow.podBasics" (merge (dict "ownTolerations" $tolerations) .) | nindent 2 }}
  {{- with include "onceflow.spread" (dict "constraints" .Values.topologySpreadConstraints "labels" (include "onceflow.executorLabels" .)) }}{{ . | nindent 2 }}{{ end }}
  serviceAccountName: {{ include "onceflow.serviceAccount" . }}
  automountServiceAccountToken: false
  containers:
    - name: spark-kubernetes-executor
      {{- include "onceflow.container" . | nindent 6 }}
      workingDir: /tmp
      env:
        - {name: HOME, value: /tmp}
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      volumeMounts:
        - {name: scratch, mountPath: /tmp}
        {{- include "onceflow.sharedMounts" . | trim | nindent 8 }}
  volumes:
    - {name: scratch, emptyDir: {sizeLimit: 1Gi}}
    {{- include "onceflow.sharedVolumes" . | trim | nindent 4 }}
    {{- with include "onceflow.mountedVolumes" . | trim }}{{ . | nindent 4 }}{{ end }}
    {{- if and .Values.persistence.enabled (not .Values.persistence.existingClaim) }}
    - {name: checkpoints, persistentVolumeClaim: {claimName: {{ include "onceflow.claim" . }}}}
    {{- end }}
{{- end -}}
