{{/* The device config of webhook, scheduler and device plugin, and the names and keys in it. */}}

{{/* Name of the ConfigMap with device-config.yaml, the same as in HAMi's chart. */}}
{{- define "hami.deviceConfigMap" -}}
{{ include "hami.fullname" . }}-scheduler-device
{{- end -}}

{{- define "hami.deviceConfig" -}}
{{- if .Values.deviceConfig.content -}}
{{- .Values.deviceConfig.content -}}
{{- else -}}
{{- $config := omit .Values.deviceConfig "content" | deepCopy -}}
{{- range $name, $switch := omit .Values.devices "ascend" "iluvatar" -}}
  {{- if not (dig "enabled" true $switch) }}{{ $_ := unset $config $name }}{{ end -}}
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

{{/* Resource names in a part of the device config, one on each line. */}}
{{- define "hami.namesIn" -}}
{{- range $key, $value := . -}}
{{- if or (kindIs "map" $value) (kindIs "slice" $value) -}}
{{ include "hami.namesIn" $value }}
{{- else if and (kindIs "string" $key) (hasPrefix "resource" (toString $key)) $value -}}
{{ $value }}{{ "\n" }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The device config of webhook and scheduler, as JSON, without the chips of disabled vendors. */}}
{{- define "hami.managedConfig" -}}
{{- $config := include "hami.deviceConfig" . | fromYaml -}}
{{- if $config.Error }}{{ fail (printf "deviceConfig.content is not YAML: %s" $config.Error) }}{{ end -}}
{{- if not .Values.devices.ascend.enabled }}{{ $config = omit $config "vnpus" }}{{ end -}}
{{- if not .Values.devices.iluvatar.enabled }}{{ $config = omit $config "iluvatars" }}{{ end -}}
{{- toJson $config -}}
{{- end -}}

{{/* Names of the resources that webhook and scheduler manage: those of enabled vendors, as a sorted JSON list. */}}
{{- define "hami.managedNames" -}}
{{- $config := include "hami.managedConfig" . | fromJson -}}
{{- if and .Values.devicePlugin.enabled (not (default dict $config.nvidia).resourceCountName) -}}
  {{- fail "deviceConfig.content has no nvidia.resourceCountName: add nvidia: {resourceCountName: nvidia.com/gpu, ...}, or set devicePlugin.enabled=false" -}}
{{- end -}}
{{- $names := include "hami.namesIn" $config | splitList "\n" | compact | uniq | sortAlpha -}}
{{- if not $names -}}
  {{- fail "deviceConfig.content has no resource of an enabled vendor: add one, such as nvidia: {resourceCountName: nvidia.com/gpu}" -}}
{{- end -}}
{{- range $names -}}
  {{- if not (regexMatch "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" .) -}}
    {{- fail (printf "deviceConfig.content: %q is not a resource name such as nvidia.com/gpu" .) -}}
  {{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* The annotations from which the scheduler reads a Pod's grant, as a sorted JSON list. Each enabled chip has one, made from
its commonWord in the device config. Those of the other vendors are in vendors.json, and are always read. */}}
{{- define "hami.allocatedKeys" -}}
{{- $config := include "hami.managedConfig" . | fromJson -}}
{{- $chips := default list $config.vnpus -}}
{{- if kindIs "map" $chips }}{{ $chips = default list $chips.configs }}{{ end -}}
{{- $keys := (.Files.Get "vendors.json" | fromJson).allocatedKeys -}}
{{- range concat $chips (default list $config.iluvatars) -}}
  {{- $keys = append $keys (printf "hami.io/%s-devices-allocated" .commonWord) -}}
{{- end -}}
{{- $keys | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* The annotations that our device plugin writes: of a grant on Pods, and on its Node. */}}
{{- define "hami.pluginPodKeys" -}}
{{- (.Files.Get "vendors.json" | fromJson).pluginPodKeys | toJson -}}
{{- end -}}
{{- define "hami.pluginNodeKeys" -}}
{{- (.Files.Get "vendors.json" | fromJson).pluginNodeKeys | toJson -}}
{{- end -}}

{{/* Arguments that enable the two vendors that are off by default in HAMi. */}}
{{- define "hami.vendorArguments" -}}
- --enable-ascend={{ .Values.devices.ascend.enabled }}
- --enable-iluvatar={{ .Values.devices.iluvatar.enabled }}
{{- end -}}
