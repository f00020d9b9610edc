{{/* The release's name, which every object's begins with: the release itself where it names the chart, as HAMi's. */}}
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

{{/* Labels that select a component's Pods; they never change. Argument: (list $ "component"). */}}
{{- define "hami.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: hami-{{ index . 1 }}
{{- end -}}

{{/* Labels of a component's objects. Argument: (list $ "component"). */}}
{{- define "hami.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version }}
{{ include "hami.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: hami
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- end -}}

{{/* Labels of a component's Pods: admission of our own Pods must not wait for our own webhook. */}}
{{- define "hami.podLabels" -}}
{{ include "hami.labels" . }}
hami.io/webhook: ignore
{{- end -}}

{{/* An image of ours. Argument: (list $ image). */}}
{{- define "hami.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $root.Values.image.registry }}{{ . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ coalesce $image.tag $root.Values.image.tag $root.Chart.AppVersion }}{{ end -}}
{{- end -}}

{{/* kube-scheduler's image; without a tag the cluster's own version, without what distributions append to it. */}}
{{- define "hami.kubeSchedulerImage" -}}
{{- $image := .Values.scheduler.kubeScheduler.image -}}
{{- $version := regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version -}}
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default $version $image.tag }}{{ end -}}
{{- end -}}

{{- define "hami.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Name of the ConfigMap with device-config.yaml, as HAMi's chart calls it. */}}
{{- define "hami.deviceConfigMap" -}}
{{ include "hami.fullname" . }}-scheduler-device
{{- end -}}

{{- define "hami.deviceConfig" -}}
{{- if .Values.deviceConfig.content -}}
{{- .Values.deviceConfig.content -}}
{{- else -}}
nvidia:
  resourceCountName: {{ .Values.resourceName }}
  resourceMemoryName: {{ .Values.resourceMem }}
  resourceMemoryPercentageName: {{ .Values.resourceMemPercentage }}
  resourceCoreName: {{ .Values.resourceCores }}
  resourcePriorityName: {{ .Values.resourcePriority }}
  {{- toYaml .Values.deviceConfig.nvidia | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Restart Pods whose device configuration changed: it is mounted as one file, which the kubelet does not update. */}}
{{- define "hami.podAnnotations" -}}
checksum/device-config: {{ include "hami.deviceConfig" (index . 0) | sha256sum }}
{{- with index . 1 }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Secret with the webhook's certificate. */}}
{{- define "hami.webhookSecret" -}}
{{- default (printf "%s-webhook-tls" (include "hami.fullname" .)) .Values.webhook.tls.secretName -}}
{{- end -}}

{{/* The environment variable that makes writers speak an older HAMi's wire format, if any. */}}
{{- define "hami.wireVersion" -}}
{{- with .Values.wireVersion }}
- name: HAMI_WIRE_VERSION
  value: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "hami.nodeName" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- end -}}

{{/* What a container may do that needs nothing of its Node. */}}
{{- define "hami.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Where a component's Pods may run. Argument: the component's values. */}}
{{- define "hami.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
