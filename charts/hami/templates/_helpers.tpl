{{/* Names, labels, images and the common parts of all Pods. `_aliases.tpl` has HAMi's names. */}}

{{/* Prefix of all object names: the release's name, plus the chart's unless the release's contains it, as in HAMi's chart. */}}
{{- define "hami.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "hami.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* Maps as one YAML map without a key twice: a later map overrides an earlier one. Empty if all are. Argument: the maps. */}}
{{- define "hami.merged" -}}
{{- $merged := dict -}}
{{- range . }}{{ range $key, $value := . }}{{ $_ := set $merged $key $value }}{{ end }}{{ end -}}
{{- include "hami.yaml" $merged -}}
{{- end -}}

{{/* Labels that select a component's Pods. They must never change. Argument: (list $ "component"). */}}
{{- define "hami.selector" -}}
{{- $root := index . 0 -}}
{{- toYaml (dict
  "app.kubernetes.io/name" (default $root.Chart.Name $root.Values.nameOverride)
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/component" (printf "hami-%s" (index . 1))) -}}
{{- end -}}

{{/* Labels of a component's objects. A user's override ours, except those that select Pods. Argument: (list $ "component" [labels]). */}}
{{- define "hami.labels" -}}
{{- $root := index . 0 -}}
{{- $ours := dict
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name ($root.Chart.Version | replace "+" "_"))
  "app.kubernetes.io/version" (include "hami.version" .)
  "app.kubernetes.io/part-of" "hami"
  "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- include "hami.merged" (concat (list $ours $root.Values.commonLabels) (slice . 2) (list (include "hami.selector" . | fromYaml))) -}}
{{- end -}}

{{/* Name, labels and annotations of an object. Argument: (list $ "component" "name" [labels] [annotations]). */}}
{{- define "hami.named" -}}
{{- $root := index . 0 -}}
{{- $given := concat (slice . 3) (list dict dict) -}}
name: {{ index . 2 }}
labels:
  {{- include "hami.labels" (list $root (index . 1) (index $given 0)) | nindent 2 }}
{{- with include "hami.merged" (list $root.Values.commonAnnotations (index $given 1)) }}
annotations:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Metadata of a cluster-scoped object. Argument: as above, with the part of the name that follows the prefix. */}}
{{- define "hami.clusterMetadata" -}}
{{- $name := printf "%s-%s" (include "hami.fullname" (index . 0)) (index . 2) -}}
{{- include "hami.named" (concat (slice . 0 2) (list $name) (slice . 3)) -}}
{{- end -}}

{{/* Metadata of a namespaced object. Argument: as above. */}}
{{- define "hami.metadata" -}}
namespace: {{ include "hami.namespace" (index . 0) }}
{{ include "hami.clusterMetadata" . }}
{{- end -}}

{{/* Metadata of a component's Pods. Their label keeps them out of our own webhook. A changed checksum restarts Pods that read a
ConfigMap only once. Argument: (list $ "component" values checksums [labels]). */}}
{{- define "hami.podMetadata" -}}
{{- $values := index . 2 -}}
labels:
  {{- include "hami.labels" (concat (list (index . 0) (index . 1) $values.podLabels (dict "hami.io/webhook" "ignore")) (slice . 4)) | nindent 2 }}
{{- with include "hami.merged" (list $values.podAnnotations (index . 3)) }}
annotations:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The image of a component. HAMi's program does not take our arguments. Argument: (list $ "component" "key of its values"). */}}
{{- define "hami.image" -}}
{{- $common := (index . 0).Values.image -}}
{{- $name := index . 1 -}}
{{- $key := index . 2 -}}
{{- $image := (index (index . 0).Values $key).image -}}
{{- if regexMatch "(^|/)hami$" $image.repository -}}
  {{- fail (printf "%s.image.repository=%s is HAMi's program: remove it, or set it to where your registry has hami/%s" $key $image.repository $name) -}}
{{- end -}}
{{- range $path, $tag := dict "image.tag" $common.tag (printf "%s.image.tag" $key) $image.tag -}}
  {{- if and (not $image.digest) (regexMatch "^v2\\.[0-9]+" $tag) -}}
    {{- fail (printf "%s=%s is a version of HAMi: remove it, or set it to the tag that your hami/%s has" $path $tag $name) -}}
  {{- end -}}
{{- end -}}
{{- include "hami.located" (list $common.registry $image.repository) -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ coalesce $image.tag $common.tag (include "hami.version" (list (index . 0) $name)) }}{{ end -}}
{{- end -}}

{{/* The version of a part, by parts.yaml; the chart's for what belongs to no service. Argument: (list $ "component"). */}}
{{- define "hami.version" -}}
{{- $root := index . 0 -}}
{{- get ($root.Files.Get "parts.yaml" | fromYaml) (index . 1) | default $root.Chart.AppVersion -}}
{{- end -}}

{{/* A repository with its registry. Without one, the container runtime would pull from docker.io, from a name that is not ours.
Argument: (list registry repository). */}}
{{- define "hami.located" -}}
{{- $registry := index . 0 -}}
{{- $repository := index . 1 -}}
{{- if not (or $registry (regexMatch "^(localhost|[^/]*[.:][^/]*)/" $repository)) -}}
  {{- fail "image.registry is empty: set it to the registry that you pushed the images to, as in docs/install.md, such as image.registry=registry.example.com" -}}
{{- end -}}
{{- with $registry }}{{ . }}/{{ end -}}
{{- $repository -}}
{{- end -}}

{{/* kube-scheduler's image. Without a tag: the cluster's version, without a distribution's suffix. HAMi's global.imageRegistry
overrides the registry of the image. */}}
{{- define "hami.kubeSchedulerImage" -}}
{{- $image := .Values.scheduler.kubeScheduler.image -}}
{{- $version := regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version -}}
{{- $registry := coalesce (dig "imageRegistry" "" (default dict .Values.global)) $image.registry .Values.image.registry -}}
{{- include "hami.located" (list $registry $image.repository) -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default $version $image.tag }}{{ end -}}
{{- end -}}

{{/* Fail for a webhook or scheduler on a Kubernetes without the /livez of kube-scheduler. Argument: (list $ "component"). */}}
{{- define "hami.checkKubernetes" -}}
{{- $version := (index . 0).Capabilities.KubeVersion.Version -}}
{{- if semverCompare "<1.31.0-0" $version -}}
  {{- fail (printf "%s.enabled=true needs Kubernetes 1.31, and this is %s: set webhook.enabled=false and scheduler.enabled=false, and keep HAMi's; device plugin and monitor work from 1.28" (index . 1) $version) -}}
{{- end -}}
{{- end -}}

{{/* The name of a component's ServiceAccount. Argument: (list $ "component" values). */}}
{{- define "hami.serviceAccount" -}}
{{- default (printf "%s-%s" (include "hami.fullname" (index . 0)) (index . 1)) (index . 2).serviceAccount.name -}}
{{- end -}}

{{/* Of a policy, the condition that the device plugin writes, and the variable `node`: where the Pod of its token runs, or "". */}}
{{- define "hami.isDevicePlugin" -}}
{{- $account := printf "system:serviceaccount:%s:%s" (include "hami.namespace" .) (include "hami.serviceAccount" (list . "device-plugin" .Values.devicePlugin)) -}}
- name: is-the-device-plugin
  expression: >-
    has(request.userInfo.username) && request.userInfo.username == {{ $account | quote }}
{{- end -}}
{{- define "hami.nodeOfToken" -}}
{{- $node := "authentication.kubernetes.io/node-name" | quote -}}
- name: node
  expression: >-
    has(request.userInfo.extra) && {{ $node }} in request.userInfo.extra
    ? request.userInfo.extra[{{ $node }}][0] : ""
{{- end -}}

{{/* ServiceAccount, priority class and pull Secrets of a component's Pods. Argument: (list $ "component" values). */}}
{{- define "hami.podIdentity" -}}
{{- $values := index . 2 -}}
serviceAccountName: {{ include "hami.serviceAccount" . }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with (index . 0).Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Where a component's Pods may run. An empty value falls back to the neighbour's. Argument: (list values neighbour's). */}}
{{- define "hami.placement" -}}
{{- $own := index . 0 -}}
{{- $neighbour := index . 1 -}}
{{- with default $neighbour.nodeSelector $own.nodeSelector -}}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with default $neighbour.tolerations $own.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Prefer different Nodes for the replicas. Argument: (list $ "component" values). */}}
{{- define "hami.spread" -}}
affinity:
{{- with (index . 2).affinity }}
  {{- toYaml . | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "hami.selector" (list (index . 0) (index . 1)) | nindent 14 }}
{{- end }}
{{- with (index . 2).topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Startup, readiness and liveness probes. Their time-outs are long, because a restart on an overloaded Node adds load.
Argument: (list port scheme). */}}
{{- define "hami.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: {{ index . 0 }}, scheme: {{ index . 1 }}}
  periodSeconds: 2
  failureThreshold: 150
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: {{ index . 0 }}, scheme: {{ index . 1 }}}
  periodSeconds: 5
  timeoutSeconds: 5
livenessProbe:
  httpGet: {path: /livez, port: {{ index . 0 }}, scheme: {{ index . 1 }}}
  periodSeconds: 20
  failureThreshold: 6
  timeoutSeconds: 10
{{- end -}}

{{/* A value as YAML, nothing if it is empty. */}}
{{- define "hami.yaml" -}}
{{- with . }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* Not empty on OpenShift. */}}
{{- define "hami.isOpenShift" -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}true{{ end -}}
{{- end -}}

{{/* The securityContext of Pods without access to their Node. OpenShift's SCC restricted-v2 rejects a fixed user or group, and
gives each namespace its own.
Source: https://docs.redhat.com/en/documentation/openshift_container_platform/4.17/html/authentication_and_authorization/managing-pod-security-policies */}}
{{- define "hami.unprivilegedPod" -}}
runAsNonRoot: true
{{- if not (include "hami.isOpenShift" .) }}
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* On OpenShift, the right of a component to use folders of its Node as root. Argument: (list $ "component" values). */}}
{{- define "hami.nodeConstraints" -}}
{{- $root := index . 0 -}}
{{- if include "hami.isOpenShift" $root }}
---
# The SCC privileged: no smaller one of OpenShift's allows hostPath and DAC_OVERRIDE.
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "hami.metadata" (list $root (index . 1) (printf "%s-scc" (index . 1))) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:openshift:scc:privileged
subjects:
  - kind: ServiceAccount
    name: {{ include "hami.serviceAccount" . }}
    namespace: {{ include "hami.namespace" $root }}
{{- end }}
{{- end -}}

{{/* The securityContext of their containers. */}}
{{- define "hami.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Not empty if the device plugin of Nodes of a kind reads or changes MIG instances. It is privileged then: in a CDI mode, NVIDIA's runtime gives a
container no GPU in MIG mode, and only the instances that it finds at the container's start. Instances that an administrator made
are for Nodes of kind plugin. Argument: (list $ kind).
Source: https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/pkg/nvcdi/lib-nvml.go */}}
{{- define "hami.hasMig" -}}
{{- $kind := index . 1 -}}
{{- $all := index . 0 -}}
{{- $plugin := $all.Values.devicePlugin -}}
{{- $strategies := list $plugin.migStrategy -}}
{{- $modes := list -}}
{{- range $plugin.nodeConfig.nodeconfig }}{{ $modes = append $modes .operatingmode }}{{ end -}}
{{- $files := list (include "hami.deviceConfig" $all | fromYaml) -}}
{{- range $name, $text := $plugin.config.map -}}
  {{- $named := fromYaml $text -}}
  {{- if $named.Error }}{{ fail (printf "devicePlugin.config.map.%s is not YAML: %s" $name $named.Error) }}{{ end -}}
  {{- $files = append $files $named -}}
  {{- range $key, $value := $named.nvidia }}{{ if eq (lower $key) "operatingmode" }}{{ $modes = append $modes $value }}{{ end }}{{ end -}}
{{- end -}}
{{- range $files }}{{ $strategies = append $strategies (include "hami.at" (list . "flags.migStrategy") | fromJson).value }}{{ end -}}
{{- if and (has "mig" $modes) (not (include "hami.at" (list (first $files) "nvidia.migProfileAllowlist") | fromJson).value) -}}
  {{- fail "operatingmode mig needs the profiles to offer: add nvidia.migProfileAllowlist to deviceConfig.content, as in the chart's values.yaml" -}}
{{- end -}}
{{- if eq $kind "dra" }}{{ $strategies = list }}{{ end -}}
{{- if or $plugin.migRights (has "mig" $modes) (has "single" $strategies) (has "mixed" $strategies) -}}true{{- end -}}
{{- end -}}

{{/* The securityContext of device plugin and monitor. Files below hookPath may belong to any user.
Argument: (list values capabilities isPrivileged). A privileged container has all capabilities. */}}
{{- define "hami.nodeSecurityContext" -}}
{{- $given := (index . 0).securityContext -}}
{{- if $given -}}
{{- toYaml $given }}
{{- else if index . 2 -}}
runAsUser: 0
privileged: true
readOnlyRootFilesystem: true
{{- else -}}
runAsUser: 0
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL], add: [{{ prepend (index . 1) "DAC_OVERRIDE" | join ", " }}]}
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- end -}}

{{/* Not empty if devices may reach containers by native CDI, which the driver's limits on memory need. */}}
{{- define "hami.isNative" -}}
{{- with .Values.devicePlugin -}}
{{- if or (not .deviceListStrategy) (contains "cdi-" .deviceListStrategy) }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* What the device plugin's values cost, one sentence on each line. */}}
{{- define "hami.costs" -}}
{{- $onlyLibrary := "only the library limits memory, not the driver" -}}
{{- with .Values.devicePlugin -}}
{{- $rights := default dict .securityContext -}}
{{- if or (not .enabled) .mockDevices -}}
{{- else if eq .memoryEnforcement "none" }}
devicePlugin.memoryEnforcement=none: {{ $onlyLibrary }}
{{- else if eq .allocation "lock" }}
devicePlugin.allocation=lock: {{ $onlyLibrary }}, because the driver's limits need allocation by identity
{{- else if not (include "hami.isNative" $) }}
devicePlugin.deviceListStrategy={{ .deviceListStrategy }}: {{ $onlyLibrary }}, because the driver's limits need CDI; to have them, leave it empty
{{- else if and $rights (not $rights.privileged) (not (has "SYS_ADMIN" (dig "capabilities" "add" list $rights))) }}
devicePlugin.securityContext: {{ $onlyLibrary }}, because the driver's limits need SYS_ADMIN; to have them, add it to capabilities.add
{{- end }}
{{- end }}
{{- with .Values.webhook }}
{{- if and .enabled (eq .failurePolicy "Ignore") }}
webhook.failurePolicy=Ignore: while the webhook is unreachable, Pods that ask for a device are created without a share
{{- end }}
{{- end }}
{{- with .Values.scheduler }}
{{- if and .enabled (not .reservedAnnotations.enabled) }}
scheduler.reservedAnnotations.enabled=false: a user who may create Pods can take devices from others
{{- end }}
{{- end }}
{{- end -}}

{{/*
The driver root in the containers of device plugin and monitor; the argument is the one on the host. The folder above it
is mounted, because a driver container that restarts mounts its root again, which a mount of the root itself never shows.
*/}}
{{- define "hami.driverRoot" -}}
{{- ternary "/driver-root" (printf "/driver-root/%s" (base .)) (eq (clean .) "/") -}}
{{- end -}}

{{- define "hami.driverRootMount" -}}
- {name: driver-root, mountPath: /driver-root, readOnly: true, mountPropagation: HostToContainer}
{{- end -}}

{{- define "hami.driverRootVolume" -}}
- name: driver-root
  hostPath: {path: {{ dir (clean .) }}, type: DirectoryOrCreate}
{{- end -}}

{{/* Variables of device plugin and monitor, in the form of hami.env. The NVIDIA ones make its runtime add the driver's library and
device files. Argument: (list capabilities hookPath). */}}
{{- define "hami.nodeEnv" -}}
NODE_NAME: {fieldRef: {fieldPath: spec.nodeName}}
NVIDIA_VISIBLE_DEVICES: all
NVIDIA_DRIVER_CAPABILITIES: {{ index . 0 }}
HOOK_PATH: {{ index . 1 | quote }}
{{- end -}}

{{/* The environment of a container, no name twice: server-side apply rejects a list with a name twice. A user's variable overrides
ours, and the last of two overrides the first, as the kubelet does it. Argument: (list ours user's). Ours are values, or maps for
valueFrom, by name. */}}
{{- define "hami.env" -}}
{{- $last := dict -}}
{{- range $place, $variable := index . 1 }}{{ $_ := set $last $variable.name $place }}{{ end -}}
{{- $all := list -}}
{{- range $name, $value := index . 0 -}}
  {{- if not (hasKey $last $name) -}}
    {{- $all = append $all (dict "name" $name (ternary "valueFrom" "value" (kindIs "map" $value)) $value) -}}
  {{- end -}}
{{- end -}}
{{- range $place, $variable := index . 1 }}{{ if eq $place (get $last $variable.name) }}{{ $all = append $all $variable }}{{ end }}{{ end -}}
{{- with $all -}}
env:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The metrics port of each component. */}}
{{- define "hami.metricsPorts" -}}
webhook: 9395
scheduler: 9395
device-plugin: 9396
monitor: 9394
{{- end -}}

{{/* The enabled components, as a JSON list. */}}
{{- define "hami.components" -}}
{{- $components := list -}}
{{- range list "webhook" "scheduler" "device-plugin" "monitor" -}}
{{- if (index $.Values (camelcase . | untitle)).enabled }}{{ $components = append $components . }}{{ end -}}
{{- end -}}
{{- toJson $components -}}
{{- end -}}
