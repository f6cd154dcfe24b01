{{/* What must not be installed. Each message says what is wrong, and what to do. */}}
{{- define "onceflow.guards" -}}
{{- include "onceflow.guardReplicas" . -}}
{{- include "onceflow.guardKafka" . -}}
{{- include "onceflow.guardPipelines" . -}}
{{- include "onceflow.guardLight" . -}}
{{- if .Values.gateways -}}
{{- include "onceflow.guardGateways" . -}}
{{- end -}}
{{- include "onceflow.guardTopicJob" . -}}
{{- include "onceflow.guardControl" . -}}
{{- include "onceflow.guardExtras" . -}}
{{- if include "onceflow.hasPipelines" . -}}
{{- include "onceflow.guardCheckpoint" . -}}
{{- if .Values.standby -}}
{{- include "onceflow.guardStandby" . -}}
{{- end -}}
{{- include "onceflow.guardMemory" . -}}
{{- include "onceflow.guardResult" . -}}
{{- if include "onceflow.hasExecutors" . -}}
{{- include "onceflow.guardExecutors" . -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "onceflow.guardReplicas" -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- fail (printf "replicas: %v instances would fence one another; expected 1, or 0 to stop it" .Values.replicas) -}}
{{- end -}}
{{- end -}}

{{/* The pod that takes over reads the state that the other has written. */}}
{{- define "onceflow.guardStandby" -}}
{{- if ne .Values.mode "local" -}}
{{- fail (printf "standby: true, which mode %s does not do; expected mode local" .Values.mode) -}}
{{- end -}}
{{- $isShared := and .Values.persistence.existingClaim (eq .Values.persistence.accessMode "ReadWriteMany") -}}
{{- range $checkpoint := include "onceflow.checkpoints" . | fromJson | values -}}
{{- if and (not (contains "://" $checkpoint)) (not $isShared) -}}
{{- fail (printf "standby: a second pod would not see the checkpoint %s; let the pipeline file name a URL such as s3a://bucket/folder, or give persistence.existingClaim and accessMode ReadWriteMany" $checkpoint) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "onceflow.guardKafka" -}}
{{- $kafka := .Values.kafka -}}
{{- if not (regexMatch "^[^\\s,/]+:[0-9]+(,[^\\s,/]+:[0-9]+)*$" $kafka.bootstrapServers) -}}
{{- fail (printf "kafka.bootstrapServers: expected host:port, separated by commas; found %q" $kafka.bootstrapServers) -}}
{{- end -}}
{{- if and $kafka.sasl.mechanism (not (and $kafka.sasl.username $kafka.sasl.existingSecret)) -}}
{{- fail "kafka.sasl: a mechanism needs kafka.sasl.username, and in kafka.sasl.existingSecret the Secret with the password" -}}
{{- end -}}
{{- if and (not $kafka.sasl.mechanism) (or $kafka.sasl.username $kafka.sasl.existingSecret) -}}
{{- fail "kafka.sasl.mechanism: empty, so username and Secret would be left unused; expected PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER" -}}
{{- end -}}
{{- if ne (eq $kafka.sasl.mechanism "OAUTHBEARER") (ne $kafka.sasl.tokenEndpoint "") -}}
{{- fail "kafka.sasl.tokenEndpoint: belongs to mechanism OAUTHBEARER, which needs it; expected https://... with that mechanism, and nothing with another" -}}
{{- end -}}
{{- if and $kafka.sasl.mechanism (not $kafka.tls.enabled) (not $kafka.sasl.allowClearText) -}}
{{- fail "kafka.tls.enabled: false, so the password or token would cross the network in clear text; set it to true, or kafka.sasl.allowClearText if the network has no eavesdroppers" -}}
{{- end -}}
{{- if and $kafka.sasl.tokenEndpoint .Values.networkPolicy.enabled (not .Values.networkPolicy.tokenIssuers) -}}
{{- fail "networkPolicy.tokenIssuers: empty, so no token could be fetched; expected peers of a NetworkPolicy, such as {ipBlock: {cidr: 192.0.2.0/24}}" -}}
{{- end -}}
{{- if and (not $kafka.tls.enabled) (or $kafka.tls.caSecret $kafka.tls.certificateSecret) -}}
{{- fail "kafka.tls.enabled: false, so the Secrets of kafka.tls would be left unused; set it to true or remove them" -}}
{{- end -}}
{{- end -}}

{{- define "onceflow.guardPipelines" -}}
{{- $from := .Values.pipelinesFrom -}}
{{- $given := .Values.pipelines | default dict | len -}}
{{- if and $from.configMap (or $given .Values.files) -}}
{{- fail "pipelinesFrom.configMap: replaces pipelines and files; remove one or the other" -}}
{{- end -}}
{{- $others := or (include "onceflow.lightKindsGiven" .) .Values.gateways -}}
{{- if not (or (include "onceflow.hasPipelines" .) (and $others (not $from.configMap) (not .Values.files))) -}}
{{- if $from.configMap -}}
{{- fail "pipelinesFrom.files: expected the keys of the ConfigMap, and among them a pipeline file that ends in .yaml" -}}
{{- end -}}
{{- fail "pipelines: nothing to run. Give each file with --set-file pipelines.NAME=pipeline.yaml, at an upgrade again; or set example to always" -}}
{{- end -}}
{{- range $name, $_ := .Values.files -}}
{{- if or (hasSuffix ".yaml" $name) (hasSuffix ".yml" $name) -}}
{{- fail (printf "files.%s: would be taken for a pipeline; expected another ending, or an entry of pipelines" $name) -}}
{{- end -}}
{{- end -}}
{{- range $name, $text := include "onceflow.pipelines" . | fromJson -}}
{{- $file := fromYaml $text -}}
{{- if hasKey $file "Error" -}}
{{- fail (printf "pipelines.%s: not a YAML file: %s" $name $file.Error) -}}
{{- end -}}
{{- if and (hasKey $file "transform") (not $.Values.transforms) -}}
{{- fail (printf "pipelines.%s: names Python code, which pipeline files may not bring; set transforms to true if you trust their authors" $name) -}}
{{- end -}}
{{- if ne (get $file "name" | toString) $name -}}
{{- fail (printf "pipelines.%s: the key must be the pipeline's name; the file says name: %v" $name (get $file "name")) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Files without Spark: each is of its kind, has its name, and reaches what it is for. */}}
{{- define "onceflow.guardLight" -}}
{{- range $kind, $value := include "onceflow.lightKindsGiven" . | default "{}" | fromJson -}}
{{- include "onceflow.guardFiles" (dict "kind" $kind "value" $value "files" (get $.Values $value)) -}}
{{- if and $.Values.networkPolicy.enabled (not $.Values.light.egress) (not $.Values.networkPolicy.extraEgress) -}}
{{- fail (printf "light.egress: empty, so %s would reach the brokers and nothing else; expected rules of a NetworkPolicy, such as {ports: [{protocol: TCP, port: 5432}], to: [{ipBlock: {cidr: 192.0.2.0/24}}]}" $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Who may post, and whether others can listen. */}}
{{- define "onceflow.guardGateways" -}}
{{- include "onceflow.guardFiles" (dict "kind" "gateway" "value" "gateways" "files" .Values.gateways) -}}
{{- $gateway := .Values.gateway -}}
{{- if not $gateway.tokensSecret -}}
{{- fail "gateway.tokensSecret: empty, so everyone on the network could post; expected the Secret that holds the tokens' hashes" -}}
{{- end -}}
{{- if eq (empty $gateway.certificateSecret) (not $gateway.allowClearText) -}}
{{- fail "gateway: tokens would cross the network in clear text, or allowClearText would be left unused; expected gateway.certificateSecret, or gateway.allowClearText if a service mesh encrypts what pods send" -}}
{{- end -}}
{{- range $name, $_ := $gateway.ingress.hosts -}}
{{- if not (hasKey $.Values.gateways $name) -}}
{{- fail (printf "gateway.ingress.hosts.%s: no such gateway; expected one of %s" $name (keys $.Values.gateways | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- if and $gateway.ingress.hosts (not $gateway.ingress.tlsSecret) -}}
{{- fail "gateway.ingress.tlsSecret: empty, so tokens would reach the Ingress in clear text; expected the Secret with the certificate of its hosts" -}}
{{- end -}}
{{- $most := int $gateway.autoscaling.maxReplicas -}}
{{- if and $most (lt $most (int $gateway.replicas)) -}}
{{- fail (printf "gateway.autoscaling.maxReplicas: %d is less than gateway.replicas %d, of which there are at least so many; raise it, or set it to 0" $most (int $gateway.replicas)) -}}
{{- end -}}
{{- end -}}

{{/* Each file is of its kind and has its name: (dict "kind" "delivery" "value" "deliveries" "files" {...}). */}}
{{- define "onceflow.guardFiles" -}}
{{- $kind := .kind -}}
{{- $value := .value -}}
{{- range $name, $text := .files -}}
{{- $file := fromYaml $text -}}
{{- if hasKey $file "Error" -}}
{{- fail (printf "%s.%s: not a YAML file: %s" $value $name $file.Error) -}}
{{- end -}}
{{- if ne (get $file "kind" | toString) $kind -}}
{{- fail (printf "%s.%s: expected a file with kind: %s; found kind: %v" $value $name $kind (get $file "kind" | default "pipeline")) -}}
{{- end -}}
{{- if ne (get $file "name" | toString) $name -}}
{{- fail (printf "%s.%s: the key must be its name; the file says name: %v" $value $name (get $file "name")) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "onceflow.guardTopicJob" -}}
{{- if and .Values.topicJob.grantTo .Values.pipelinesFrom.configMap -}}
{{- fail "topicJob.grantTo: the Job cannot see pipelinesFrom.configMap; expected pipelines, or no grantTo and `onceflow acls` by hand" -}}
{{- end -}}
{{- end -}}

{{- define "onceflow.guardCheckpoint" -}}
{{- $folder := include "onceflow.checkpointFolder" . -}}
{{- $root := include "onceflow.checkpointRoot" . | trimSuffix "/" -}}
{{- $seen := dict -}}
{{- $ephemeral := .Values.persistence.ephemeral -}}
{{- if ne (empty $ephemeral.reason) (empty $ephemeral.until) -}}
{{- fail "persistence.ephemeral: half a waiver; expected reason and until, or neither" -}}
{{- end -}}
{{- if and $ephemeral.reason (or .Values.persistence.enabled (ne .Values.mode "local")) -}}
{{- fail "persistence.ephemeral: a waiver that nothing needs; expected persistence.enabled false and mode local, or no waiver" -}}
{{- end -}}
{{- range $name, $checkpoint := merge (dict "checkpointRoot" $root) (include "onceflow.checkpoints" . | fromJson) -}}
{{- $isUrl := contains "://" $checkpoint -}}
{{- if has ".." (splitList "/" $checkpoint) -}}
{{- fail (printf "checkpoint: %s leads out of its folder; name it without `..`" $checkpoint) -}}
{{- end -}}
{{- if and (not $isUrl) (not (hasPrefix (printf "%s/" $folder) (printf "%s/" $checkpoint))) -}}
{{- fail (printf "checkpoint: %s would not outlive the pod; leave it out of the pipeline file, or name a folder below %s or a URL" $checkpoint $folder) -}}
{{- end -}}
{{- if not (hasPrefix (printf "%s/" $root) (printf "%s/" $checkpoint)) -}}
{{- fail (printf "checkpoint: %s is not below %s; set checkpointRoot to the beginning of all checkpoints, such as s3a://bucket/folder" $checkpoint $root) -}}
{{- end -}}
{{- if and (not $isUrl) (not $.Values.persistence.enabled) (not $ephemeral.reason) -}}
{{- fail "persistence.enabled: false, so the checkpoint would be lost with the pod; enable it, let the pipeline file name a URL such as s3a://bucket/folder, or waive it with persistence.ephemeral" -}}
{{- end -}}
{{- if hasKey $seen $checkpoint -}}
{{- fail (printf "checkpoint: %s is that of %s and of %s; expected one for each pipeline" $checkpoint (get $seen $checkpoint) $name) -}}
{{- end -}}
{{- if ne $name "checkpointRoot" -}}
{{- $_ := set $seen $checkpoint $name -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "onceflow.guardControl" -}}
{{- if and .Values.control.enabled (not .Values.control.tokensSecret) -}}
{{- fail "control.tokensSecret: empty, so no user could sign in; expected the Secret that holds the tokens' hashes" -}}
{{- end -}}
{{- if and (not .Values.control.enabled) (or .Values.control.tokensSecret .Values.control.certificateSecret) -}}
{{- fail "control.enabled: false, so the Secrets of control would be left unused; set it to true or remove them" -}}
{{- end -}}
{{- end -}}

{{/* What a user adds to pods must not hide what the chart puts there. */}}
{{- define "onceflow.guardExtras" -}}
{{- $volumes := list "files" "pipeline" "scratch" "settings" "checkpoints" "sasl" "ca" "certificate" "spark" "tokens" "control" "gateway" "account" "object-store" -}}
{{- range .Values.extraVolumes -}}
{{- if or (has .name $volumes) (hasPrefix "secret-" .name) -}}
{{- fail (printf "extraVolumes: the chart has a volume %s of its own; expected another name" .name) -}}
{{- end -}}
{{- end -}}
{{- $folders := list "/etc/onceflow" (include "onceflow.checkpointFolder" .) "/opt/onceflow/bin" "/opt/onceflow/libexec" "/opt/java" "/opt/spark/conf" "/tmp" "/var/spark" "/var/run/secrets" -}}
{{- range $mount := .Values.extraVolumeMounts -}}
{{- $path := printf "%s/" (clean $mount.mountPath | trimSuffix "/") -}}
{{- range $folders -}}
{{- if or (hasPrefix (printf "%s/" .) $path) (hasPrefix $path (printf "%s/" .)) -}}
{{- fail (printf "extraVolumeMounts: %s would hide %s, which the service needs; expected a folder of your own, such as /mnt/%s" $mount.mountPath . $mount.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Kinds of the Prometheus operator, which not every cluster has. */}}
{{- define "onceflow.guardOperator" -}}
{{- if not (or .Values.monitoring.force (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
{{- fail "monitoring: this cluster does not know the kinds of monitoring.coreos.com/v1; install the Prometheus operator, set podMonitor, serviceMonitor and prometheusRule to false, or monitoring.force to true" -}}
{{- end -}}
{{- end -}}

{{/* State and Python's workers are where Spark computes: in the driver's pod, or in executors. */}}
{{- define "onceflow.guardMemory" -}}
{{- $memory := .Values.memory -}}
{{- $parts := dict "spark.heap" .Values.spark.heap "memory.jvm" $memory.jvm "memory.python" $memory.python -}}
{{- if eq .Values.mode "local" -}}
{{- $_ := set $parts "memory.state" $memory.state -}}
{{- end -}}
{{- include "onceflow.guardFit" (dict "parts" $parts "name" "resources.limits.memory" "text" (dig "limits" "memory" "" .Values.resources)) -}}
{{- end -}}

{{- define "onceflow.guardResult" -}}
{{- $result := include "onceflow.mebibytes" (dict "name" "spark.maxResult" "text" .Values.spark.maxResult) | int64 -}}
{{- $heap := include "onceflow.mebibytes" (dict "name" "spark.heap" "text" .Values.spark.heap) | int64 -}}
{{- if ge (mul 2 $result) $heap -}}
{{- fail (printf "spark.maxResult: %s is half of spark.heap %s or more; a batch of that size would leave no room to compute it" .Values.spark.maxResult .Values.spark.heap) -}}
{{- end -}}
{{- end -}}

{{- define "onceflow.guardExecutors" -}}
{{- if hasKey .Values.spark.conf "spark.kubernetes.executor.podNamePrefix" -}}
{{- fail "spark.conf: spark.kubernetes.executor.podNamePrefix would give executors of each start the same names, so that no driver could start again; remove it, or set spark.app.name" -}}
{{- end -}}
{{- $memory := .Values.memory -}}
{{- $parts := dict "memory.jvm" $memory.jvm "memory.state" $memory.state "memory.python" $memory.python -}}
{{- include "onceflow.guardFit" (dict "parts" $parts "name" "executors.memoryOverhead" "text" .Values.executors.memoryOverhead) -}}
{{- $most := int .Values.executors.dynamic.max -}}
{{- if and $most (lt $most (int .Values.executors.instances)) -}}
{{- fail (printf "executors.dynamic.max: %d is less than executors.instances %d, of which there are at least so many; raise it, or set it to 0" $most (int .Values.executors.instances)) -}}
{{- end -}}
{{- $checkpoints := include "onceflow.checkpoints" . | fromJson -}}
{{- if not $checkpoints -}}
{{- fail (printf "pipelinesFrom.checkpoint: mode %s needs to know where the pipeline files say their checkpoints are" .Values.mode) -}}
{{- end -}}
{{- range $checkpoint := values $checkpoints -}}
{{- if and (not (contains "://" $checkpoint)) (ne $.Values.persistence.accessMode "ReadWriteMany") -}}
{{- fail (printf "checkpoint: executors on other nodes would not see %s on a %s volume; let the pipeline file name a URL such as s3a://bucket/folder, or set persistence.accessMode to ReadWriteMany" $checkpoint $.Values.persistence.accessMode) -}}
{{- end -}}
{{- end -}}
{{- if not .Values.executors.secret -}}
{{- fail "executors.secret: empty; expected a Secret by which driver and executors know each other: kubectl create secret generic NAME --from-literal=secret=$(openssl rand -hex 32)" -}}
{{- end -}}
{{- end -}}

{{/* Parts of a pod's memory against what there is for them. */}}
{{- define "onceflow.guardFit" -}}
{{- if not .text -}}
{{- fail (printf "%s: not set; a pod without it could take the memory of its whole node" .name) -}}
{{- end -}}
{{- $needed := 0 -}}
{{- $words := list -}}
{{- range $name, $text := .parts -}}
{{- $needed = add $needed (include "onceflow.mebibytes" (dict "name" $name "text" $text) | int64) -}}
{{- $words = append $words (printf "%s %s" $name $text) -}}
{{- end -}}
{{- if gt $needed (include "onceflow.mebibytes" (dict "name" .name "text" .text) | int64) -}}
{{- fail (printf "%s: %s is less than %s = %dMi, so the pod would be killed under load" .name .text (join " + " $words) $needed) -}}
{{- end -}}
{{- end -}}
