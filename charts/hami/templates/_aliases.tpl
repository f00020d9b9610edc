{{/* Translates HAMi's names for values to ours, by the table aliases.yaml.

Every template begins with "hami.translate". The first one translates .Values, which all templates share. */}}

{{- define "hami.translate" -}}
{{- if not (hasKey .Values "hamiNotes") -}}
{{- if not .Values.enabled -}}
  {{- fail "enabled=false has an effect only as the condition of a dependency: to install nothing, do not install this chart; to leave out a part, set webhook.enabled, scheduler.enabled, devicePlugin.enabled or monitor.enabled" -}}
{{- end -}}
{{- $theirs := list -}}
{{- range list "2.10" "2.9" "2.8" -}}
  {{- $theirs = append $theirs ($.Files.Get (printf "hami-defaults/%s.yaml" .) | fromYaml) -}}
{{- end -}}
{{- $source := dict
  "values" .Values
  "given" (deepCopy .Values)
  "theirs" $theirs
  "defaults" (.Files.Get "alias-defaults.json" | fromJson)
  "table" (.Files.Get "aliases.yaml" | fromYaml) -}}
{{- include "hami.reject" $source -}}
{{- include "hami.refuse" $source -}}
{{- $notes := list -}}
{{- range list "hami.drop" "hami.ignore" "hami.replace" "hami.rename" "hami.join" -}}
  {{- $notes = concat $notes (include . $source | trim | splitList "\n" | compact) -}}
{{- end -}}
{{- include "hami.checkContent" $source -}}
{{- $lost := list -}}
{{- range $notes }}{{ if contains " has no effect: " . }}{{ $lost = append $lost . }}{{ end }}{{ end -}}
{{- if and .Values.strict $lost -}}
  {{- fail (printf "strict=true, and these values have no effect: remove them\n- %s" (join "\n- " $lost)) -}}
{{- end -}}
{{- $_ := set .Values "hamiNotes" $notes -}}
{{- end -}}
{{- end -}}

{{/* Each of the seven applies one section of the table to the source above, and prints a line for each value that the notes name. */}}

{{- define "hami.reject" -}}
{{- $found := list -}}
{{- range $row := .table.foreign -}}
  {{- range $name := $row.names -}}
    {{- range $path := include "hami.leaves" (list $name (include "hami.at" (list $.given $name) | fromJson).value) | splitList "\n" | compact -}}
      {{- $found = append $found (printf "%s is not a value of this chart: %s" $path $row.instead) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- with $found }}{{ fail (join "\n" (prepend . "")) }}{{ end -}}
{{- end -}}

{{- define "hami.refuse" -}}
{{- range $old, $reason := .table.refused -}}
  {{- $found := include "hami.found" (list $ $old) | fromJson -}}
  {{- if and $found.isGiven (not $found.isDefault) -}}
    {{- fail (printf "%s=%v cannot be kept: %s" $old $found.value $reason) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "hami.drop" -}}
{{- range $old, $reason := .table.dropped -}}
  {{- if (include "hami.found" (list $ $old) | fromJson).isGiven }}
{{ $old }} has no effect: {{ $reason }}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "hami.ignore" -}}
{{- range $old, $reason := .table.ignored -}}
  {{- $found := include "hami.found" (list $ $old) | fromJson -}}
  {{- if and $found.isGiven (not $found.isDefault) }}
{{ $old }} has no effect: {{ $reason }}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "hami.replace" -}}
{{- range $old, $row := .table.replaced -}}
  {{- $defaults := list -}}
  {{- range $.theirs }}{{ $defaults = append $defaults (include "hami.at" (list . $old)) }}{{ end -}}
  {{- $isDefault := has (include "hami.at" (list $.given $old)) $defaults -}}
  {{- if and $isDefault (or (not $row.copiedWith) (include "hami.isCopied" (list $ $row.copiedWith))) -}}
    {{- include "hami.put" (list $.values $old (index $.defaults $old)) }}
{{ $old }} has no effect: {{ $row.why }}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "hami.rename" -}}
{{- range $old, $row := .table.renamed -}}
  {{- $found := include "hami.found" (list $ $old) | fromJson -}}
  {{- if $found.isGiven -}}
    {{- $value := (include "hami.as" (list $old $row.as $found.value) | fromJson).value -}}
    {{- $new := (include "hami.at" (list $.values $row.to) | fromJson).value -}}
    {{- $isFree := has (toJson $new) (list (index $.defaults $row.to | toJson) (toJson $value)) -}}
    {{- $isUnset := and $found.isDefault (or $row.unlessDefault (not $isFree) (include "hami.isCopied" (list $ $row.copiedWith))) -}}
    {{- if or (kindIs "invalid" $value) $isUnset -}}
    {{- else if and (not $isFree) $row.yields -}}
      {{- include "hami.put" (list $.values $old dict.none) }}
{{ $old }} has no effect: {{ $row.yields }}
    {{- else if not $isFree -}}
      {{- fail (printf "%s=%s and %s=%s are the same value, which is called %s here: remove %s" $old (toJson $found.value) $row.to (toJson $new) $row.to $old) -}}
    {{- else -}}
      {{- include "hami.put" (list $.values $row.to $value) -}}
      {{- if not $found.isDefault }}
{{ $old }} is {{ $row.to }} here
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "hami.join" -}}
{{- range $old, $new := .table.joined -}}
  {{- $found := include "hami.found" (list $ $old) | fromJson -}}
  {{- $names := (include "hami.at" (list $.values $new) | fromJson).value -}}
  {{- range $found.value }}{{ if kindIs "map" . }}{{ $names = append $names .name }}{{ else }}{{ $names = append $names . }}{{ end }}{{ end -}}
  {{- if $found.value }}
    {{- include "hami.put" (list $.values $new (uniq $names)) }}
{{ $old }} is added to {{ $new }} here
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Fail if deviceConfig.content replaces a value that is not a default. It does not replace `enabled` of two vendors. */}}
{{- define "hami.checkContent" -}}
{{- if .values.deviceConfig.content -}}
  {{- $defaults := dict -}}
  {{- range .table.replacedByContent }}{{ $_ := set $defaults . (index $.defaults .) }}{{ end -}}
  {{- range $path := include "hami.changed" (list "" .values $defaults) | splitList "\n" | compact -}}
    {{- if not (has $path (list "deviceConfig.content" "devices.ascend.enabled" "devices.iluvatar.enabled")) -}}
      {{- $name := $path -}}
      {{- range $old, $row := $.table.renamed -}}
        {{- if and (eq $row.to $path) (include "hami.found" (list $ $old) | fromJson).isGiven }}{{ $name = $old }}{{ end -}}
      {{- end -}}
      {{- $value := (include "hami.at" (list $.values $path) | fromJson).value -}}
      {{- fail (printf "%s=%s has no effect beside deviceConfig.content, which is the complete device config: write it there, and remove it here" $name (toJson $value)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Paths of the values that differ from defaults, one on each line. Argument: (list "path of both." values defaults). */}}
{{- define "hami.changed" -}}
{{- $values := index . 1 -}}
{{- range $name, $default := index . 2 -}}
  {{- $path := printf "%s%s" (index $ 0) $name -}}
  {{- $value := index $values $name -}}
  {{- if and (kindIs "map" $value) (kindIs "map" $default) -}}
    {{- include "hami.changed" (list (printf "%s." $path) $value $default) -}}
  {{- else if ne (toJson $value) (toJson $default) }}
{{ $path }}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Paths of the leaves of a value, one on each line; none for null, an empty map or list. Argument: (list "path of the value" value). */}}
{{- define "hami.leaves" -}}
{{- $path := index . 0 -}}
{{- $value := index . 1 -}}
{{- if kindIs "map" $value -}}
  {{- range $name, $inner := $value }}{{ include "hami.leaves" (list (printf "%s.%s" $path $name) $inner) }}{{ end -}}
{{- else if not (or (kindIs "invalid" $value) (and (kindIs "slice" $value) (empty $value))) }}
{{ $path }}
{{- end -}}
{{- end -}}

{{/* The value at a path: {"value": ...}, or null. Argument: (list map "a.b.c"). */}}
{{- define "hami.at" -}}
{{- $value := index . 0 -}}
{{- range splitList "." (index . 1) -}}
  {{- if kindIs "map" $value }}{{ $value = index $value . }}{{ else }}{{ $value = dict.none }}{{ end -}}
{{- end -}}
{{- dict "value" $value | toJson -}}
{{- end -}}

{{/* Write a value to a path. Argument: (list map "a.b.c" value). */}}
{{- define "hami.put" -}}
{{- $map := index . 0 -}}
{{- $keys := splitList "." (index . 1) -}}
{{- range initial $keys -}}
  {{- if not (kindIs "map" (index $map .)) }}{{ $_ := set $map . dict }}{{ end -}}
  {{- $map = index $map . -}}
{{- end -}}
{{- $_ := set $map (last $keys) (index . 2) -}}
{{- end -}}

{{/* The value of an old name: {"isGiven", "isDefault", "value"}. Helm merges a map into HAMi's default, so this does too;
an empty map counts as not given. isDefault: it is the default of one of HAMi's versions. Argument: (list source "a.b.c"). */}}
{{- define "hami.found" -}}
{{- $source := index . 0 -}}
{{- $path := index . 1 -}}
{{- $given := (include "hami.at" (list $source.given $path) | fromJson).value -}}
{{- $isGiven := not (or (kindIs "invalid" $given) (and (kindIs "map" $given) (empty $given))) -}}
{{- $isDefault := false -}}
{{- $value := $given -}}
{{- range reverse $source.theirs -}}
  {{- $default := (include "hami.at" (list . $path) | fromJson).value -}}
  {{- if and (kindIs "map" $given) (kindIs "map" $default) -}}
    {{- $value = mergeOverwrite (deepCopy $default) $given -}}
  {{- end -}}
  {{- $isDefault = or $isDefault (eq (toJson $value) (toJson $default)) -}}
{{- end -}}
{{- dict "isGiven" $isGiven "isDefault" $isDefault "value" $value | toJson -}}
{{- end -}}

{{/* Not empty if there are paths, and all values there are given and are HAMi's defaults. Argument: (list source paths). */}}
{{- define "hami.isCopied" -}}
{{- $source := index . 0 -}}
{{- $paths := default list (index . 1) -}}
{{- $isCopied := gt (len $paths) 0 -}}
{{- range $paths -}}
  {{- $found := include "hami.found" (list $source .) | fromJson -}}
  {{- $isCopied = and $isCopied $found.isGiven $found.isDefault -}}
{{- end -}}
{{- if $isCopied }}true{{ end -}}
{{- end -}}

{{/* An old value in the form of the new name: {"value": ...}, null if it counts as not given. "nodeConfig" leaves out the sample
entry of HAMi's default, and writes keys in small letters, because HAMi reads them in any case.
Argument: (list "old name" as value). */}}
{{- define "hami.as" -}}
{{- $as := index . 1 -}}
{{- $value := index . 2 -}}
{{- if eq (toString $as) "boolean" -}}
  {{- $value = eq (toString $value) "true" -}}
{{- else if eq (toString $as) "certManager" -}}
  {{- $value = ternary "cert-manager" dict.none $value -}}
{{- else if eq (toString $as) "parent" -}}
  {{- $value = dir $value -}}
{{- else if and (eq (toString $as) "aboveVgpu") $value -}}
  {{- if ne (base $value) "vgpu" -}}
    {{- fail (printf "%s=%s cannot be kept: the library and the region files are in vgpu below hookPath: move the folder to %s/vgpu on each Node after all Pods with shares have ended, and set hookPath=%s" (index . 0) $value (dir $value) (dir $value)) -}}
  {{- end -}}
  {{- $value = dir $value -}}
{{- else if eq (toString $as) "list" -}}
  {{- $value = default list $value -}}
{{- else if eq (toString $as) "arguments" -}}
  {{- $arguments := list -}}
  {{- range $value }}{{ if not (hasPrefix "--config=" .) }}{{ $arguments = append $arguments . }}{{ end }}{{ end -}}
  {{- $value = $arguments -}}
{{- else if eq (toString $as) "nodeConfig" -}}
  {{- $value = fromJson $value -}}
  {{- if $value.Error }}{{ fail (printf "%s is not JSON: %s" (index . 0) $value.Error) }}{{ end -}}
  {{- $nodes := list -}}
  {{- range $given := $value.nodeconfig -}}
    {{- $node := dict -}}
    {{- range $key, $setting := $given }}{{ $_ := set $node (lower $key) $setting }}{{ end -}}
    {{- if not (has (default "" $node.operatingmode) (list "" "hami-core" "mig" "mps")) -}}
      {{- fail (printf "%s: operatingmode of Node %q is %q: write hami-core, mig or mps" (index $ 0) (toString $node.name) (toString $node.operatingmode)) -}}
    {{- end -}}
    {{- if ne (toString $node.name) "your-node-name" }}{{ $nodes = append $nodes $node }}{{ end -}}
  {{- end -}}
  {{- $value = ternary (dict "nodeconfig" $nodes) dict (gt (len $nodes) 0) -}}
{{- end -}}
{{- dict "value" $value | toJson -}}
{{- end -}}
