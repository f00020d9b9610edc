{{/* The device config, which webhook, scheduler and device plugin read, and the names of resources in it. */}}

{{/* Name of the ConfigMap with device-config.yaml, as HAMi's chart calls it. */}}
{{- define "hami.deviceConfigMap" -}}
{{ include "hami.fullname" . }}-scheduler-device
{{- end -}}

{{- define "hami.deviceConfig" -}}
{{- if .Values.deviceConfig.content -}}
{{- .Values.deviceConfig.content -}}
{{- else -}}
{{- $names := dict
  "resourceCountName" .Values.resourceName
  "resourceMemoryName" .Values.resourceMem
  "resourceMemoryPercentageName" .Values.resourceMemPercentage
  "resourceCoreName" .Values.resourceCores
  "resourcePriorityName" .Values.resourcePriority -}}
{{- $nvidia := merge $names .Values.deviceConfig.nvidia -}}
{{- $runtimeClass := default .Values.devicePlugin.runtimeClassName $nvidia.runtimeClassName -}}
{{- dict "nvidia" (set $nvidia "runtimeClassName" $runtimeClass) | toYaml -}}
{{- end -}}
{{- end -}}

{{/* Names of NVIDIA's resources, a JSON list in a fixed order. */}}
{{- define "hami.resourceNames" -}}
{{- $config := include "hami.deviceConfig" . | fromYaml -}}
{{- if $config.Error }}{{ fail (printf "deviceConfig.content is not YAML: %s" $config.Error) }}{{ end -}}
{{- $nvidia := default (dict) $config.nvidia -}}
{{- if not $nvidia.resourceCountName }}{{ fail "deviceConfig.content names no nvidia.resourceCountName: write nvidia: {resourceCountName: nvidia.com/gpu, ...}" }}{{ end -}}
{{- list $nvidia.resourceCountName $nvidia.resourceMemoryName $nvidia.resourceCoreName $nvidia.resourceMemoryPercentageName $nvidia.resourcePriorityName | compact | toJson -}}
{{- end -}}

{{/* Names of every vendor's resources in a part of the device config, one a line. */}}
{{- define "hami.namesIn" -}}
{{- range $key, $value := . -}}
{{- if or (kindIs "map" $value) (kindIs "slice" $value) -}}
{{ include "hami.namesIn" $value }}
{{- else if and (kindIs "string" $key) (hasPrefix "resource" (toString $key)) $value -}}
{{ $value }}{{ "\n" }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Names of the resources that the webhook manages, a sorted JSON list: every vendor's, but for those it is to be told of. */}}
{{- define "hami.admittedNames" -}}
{{- $config := include "hami.deviceConfig" . | fromYaml -}}
{{- $arguments := join " " .Values.webhook.extraArgs -}}
{{- if not (regexMatch "--enable-ascend(=([1tT]|true|TRUE|True))?( |$)" $arguments) }}{{ $config = omit $config "vnpus" }}{{ end -}}
{{- if not (regexMatch "--enable-iluvatar(=([1tT]|true|TRUE|True))?( |$)" $arguments) }}{{ $config = omit $config "iluvatars" }}{{ end -}}
{{- include "hami.namesIn" $config | trim | splitList "\n" | sortAlpha | uniq | toJson -}}
{{- end -}}

{{/* The annotation that restarts Pods whose device config changed. */}}
{{- define "hami.deviceConfigChecksum" -}}
checksum/device-config: {{ include "hami.deviceConfig" . | sha256sum }}
{{- end -}}
