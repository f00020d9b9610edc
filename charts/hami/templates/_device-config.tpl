{{/* The device config, which webhook, scheduler and device plugin read, and the names and keys that follow from it. */}}

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

{{/* The device config as webhook and scheduler take it, JSON: without the chips of vendors that are off. */}}
{{- define "hami.managedConfig" -}}
{{- $config := include "hami.deviceConfig" . | fromYaml -}}
{{- if $config.Error }}{{ fail (printf "deviceConfig.content is not YAML: %s" $config.Error) }}{{ end -}}
{{- if not .Values.devices.ascend.enabled }}{{ $config = omit $config "vnpus" }}{{ end -}}
{{- if not .Values.devices.iluvatar.enabled }}{{ $config = omit $config "iluvatars" }}{{ end -}}
{{- toJson $config -}}
{{- end -}}

{{/* Names of the resources that webhook and scheduler manage, a sorted JSON list: every vendor's that is on. */}}
{{- define "hami.managedNames" -}}
{{- $config := include "hami.managedConfig" . | fromJson -}}
{{- if and .Values.devicePlugin.enabled (not (default dict $config.nvidia).resourceCountName) -}}
  {{- fail "deviceConfig.content names no nvidia.resourceCountName: write nvidia: {resourceCountName: nvidia.com/gpu, ...}, or set devicePlugin.enabled=false" -}}
{{- end -}}
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

{{/* The annotations in which the scheduler reads what a Pod was granted, a sorted JSON list. Chips have one each, made
of their word in the device config, and only where they are on; any other vendor's is read whatever that says. */}}
{{- define "hami.allocatedKeys" -}}
{{- $config := include "hami.managedConfig" . | fromJson -}}
{{- $chips := default list $config.vnpus -}}
{{- if kindIs "map" $chips }}{{ $chips = default list $chips.configs }}{{ end -}}
{{- $words := list "vgpu" "cambricon-mlu" "dcu" "mthreads-vgpu" "metax-gpu" "metax-sgpu" "enflame-gcu" "enflame-vgpu"
  "xpu" "aws-neuron" "amd" "Vastai" "Biren" -}}
{{- range concat $chips (default list $config.iluvatars) }}{{ $words = append $words .commonWord }}{{ end -}}
{{- $keys := list "hami.io/kunlun-allocated" -}}
{{- range $words }}{{ $keys = append $keys (printf "hami.io/%s-devices-allocated" .) }}{{ end -}}
{{- $keys | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* The arguments that let in the two vendors that HAMi leaves out unless asked. */}}
{{- define "hami.vendorArguments" -}}
- --enable-ascend={{ .Values.devices.ascend.enabled }}
- --enable-iluvatar={{ .Values.devices.iluvatar.enabled }}
{{- end -}}
