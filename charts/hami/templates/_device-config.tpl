{{/* The device config, which webhook, scheduler and device plugin read, and the names of resources in it. */}}

{{/* Name of the ConfigMap with device-config.yaml, as HAMi's chart calls it. */}}
{{- define "hami.deviceConfigMap" -}}
{{ include "hami.fullname" . }}-scheduler-device
{{- end -}}

{{- define "hami.deviceConfig" -}}
{{- if .Values.deviceConfig.content -}}
{{- .Values.deviceConfig.content -}}
{{- else -}}
{{- $config := omit .Values.deviceConfig "content" | deepCopy -}}
{{- range list "enflame" "kunlun" "mthreads" "vastai" "biren" -}}
  {{- if not (index $.Values.devices .).enabled }}{{ $_ := unset $config . }}{{ end -}}
{{- end -}}
{{- $names := dict
  "resourceCountName" .Values.resourceName
  "resourceMemoryName" .Values.resourceMem
  "resourceMemoryPercentageName" .Values.resourceMemPercentage
  "resourceCoreName" .Values.resourceCores
  "resourcePriorityName" .Values.resourcePriority -}}
{{- $nvidia := merge $names (default dict $config.nvidia) -}}
{{- $_ := default .Values.devicePlugin.runtimeClassName $nvidia.runtimeClassName | set $nvidia "runtimeClassName" | set $config "nvidia" -}}
{{- $ofChips := dict "runtimeClassName" .Values.devices.ascend.runtimeClassName "overwriteEnv" (default false $nvidia.overwriteEnv) -}}
{{- range $chip := dig "vnpus" "configs" list $config -}}
  {{- range $key, $value := $ofChips -}}
    {{- if not (hasKey $chip $key) }}{{ $_ := set $chip $key $value }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}
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

{{/* Names of the resources that webhook and scheduler manage, a sorted JSON list: every vendor's that is on. */}}
{{- define "hami.managedNames" -}}
{{- $config := include "hami.deviceConfig" . | fromYaml -}}
{{- if $config.Error }}{{ fail (printf "deviceConfig.content is not YAML: %s" $config.Error) }}{{ end -}}
{{- if and .Values.devicePlugin.enabled (not (default dict $config.nvidia).resourceCountName) -}}
  {{- fail "deviceConfig.content names no nvidia.resourceCountName: write nvidia: {resourceCountName: nvidia.com/gpu, ...}, or set devicePlugin.enabled=false" -}}
{{- end -}}
{{- if not .Values.devices.ascend.enabled }}{{ $config = omit $config "vnpus" }}{{ end -}}
{{- if not .Values.devices.iluvatar.enabled }}{{ $config = omit $config "iluvatars" }}{{ end -}}
{{- $names := include "hami.namesIn" $config | splitList "\n" | compact | uniq | sortAlpha -}}
{{- if not $names -}}
  {{- fail "deviceConfig.content names no resource of a vendor that is on: name one, as nvidia: {resourceCountName: nvidia.com/gpu}" -}}
{{- end -}}
{{- range $names -}}
  {{- if not (regexMatch "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" .) -}}
    {{- fail (printf "deviceConfig.content: %q is no name of a resource, such as nvidia.com/gpu" .) -}}
  {{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* The arguments that let in the two vendors that HAMi leaves out unless asked. */}}
{{- define "hami.vendorArguments" -}}
- --enable-ascend={{ .Values.devices.ascend.enabled }}
- --enable-iluvatar={{ .Values.devices.iluvatar.enabled }}
{{- end -}}
