{{/* HAMi's names for values, made ours by the table aliases.yaml before anything else reads .Values.

Every template begins with "hami.translate"; the first of them does it, for all share one .Values. */}}

{{- define "hami.translate" -}}
{{- if not (hasKey .Values "hamiNotes") -}}
{{- $source := dict
  "values" .Values
  "given" (deepCopy .Values)
  "theirs" (.Files.Get "ci/hami-2.10-values.yaml" | fromYaml)
  "defaults" (.Files.Get "alias-defaults.json" | fromJson)
  "table" (.Files.Get "aliases.yaml" | fromYaml) -}}
{{- include "hami.refuse" $source -}}
{{- $notes := list -}}
{{- range list "hami.ignore" "hami.replace" "hami.rename" -}}
  {{- $notes = concat $notes (include . $source | trim | splitList "\n" | compact) -}}
{{- end -}}
{{- $_ := set .Values "hamiNotes" $notes -}}
{{- end -}}
{{- end -}}

{{/* Each of the four takes what translating needs, as above, and prints a line for each value that users should hear of. */}}

{{- define "hami.refuse" -}}
{{- range $old, $reason := .table.refused -}}
  {{- $found := include "hami.found" (list $ $old) | fromJson -}}
  {{- if and $found.isGiven (not $found.isDefault) -}}
    {{- fail (printf "%s=%v cannot be kept: %s" $old $found.value $reason) -}}
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
{{- range $old, $reason := .table.replaced -}}
  {{- if eq (include "hami.at" (list $.given $old)) (include "hami.at" (list $.theirs $old)) -}}
    {{- include "hami.put" (list $.values $old (index $.defaults $old)) }}
{{ $old }} has no effect: {{ $reason }}
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
    {{- if or (kindIs "invalid" $value) (and $found.isDefault (or $row.unlessDefault (not $isFree))) -}}
    {{- else if not $isFree -}}
      {{- fail (printf "%s=%s and %s=%s are one value, whose name is %s here: remove %s" $old (toJson $found.value) $row.to (toJson $new) $row.to $old) -}}
    {{- else -}}
      {{- include "hami.put" (list $.values $row.to $value) -}}
      {{- if not $found.isDefault }}
{{ $old }} is {{ $row.to }} here
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* What is at a path: {"value": ...}, null where nothing is. Argument: (list map "a.b.c"). */}}
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

{{/* The value of an old name: {"isGiven", "isDefault", "value"}. A map is laid over HAMi's default, as HAMi's chart has it,
and an empty one says nothing. Argument: (list source "a.b.c"). */}}
{{- define "hami.found" -}}
{{- $value := (include "hami.at" (list (index . 0).given (index . 1)) | fromJson).value -}}
{{- $theirs := (include "hami.at" (list (index . 0).theirs (index . 1)) | fromJson).value -}}
{{- $isGiven := not (or (kindIs "invalid" $value) (and (kindIs "map" $value) (empty $value))) -}}
{{- if and (kindIs "map" $value) (kindIs "map" $theirs) -}}
  {{- $value = mergeOverwrite (deepCopy $theirs) $value -}}
{{- end -}}
{{- dict "isGiven" $isGiven "isDefault" (eq (toJson $value) (toJson $theirs)) "value" $value | toJson -}}
{{- end -}}

{{/* An old value as the new name takes it: {"value": ...}, null where it says nothing. Argument: (list "old name" as value). */}}
{{- define "hami.as" -}}
{{- $as := index . 1 -}}
{{- $value := index . 2 -}}
{{- if eq (toString $as) "boolean" -}}
  {{- $value = eq (toString $value) "true" -}}
{{- else if eq (toString $as) "certManager" -}}
  {{- $value = ternary "cert-manager" dict.none $value -}}
{{- else if eq (toString $as) "parent" -}}
  {{- $value = dir $value -}}
{{- else if eq (toString $as) "list" -}}
  {{- $value = default list $value -}}
{{- else if eq (toString $as) "names" -}}
  {{- $names := list -}}
  {{- range $value }}{{ if kindIs "map" . }}{{ $names = append $names .name }}{{ else }}{{ $names = append $names . }}{{ end }}{{ end -}}
  {{- $value = $names -}}
{{- else if eq (toString $as) "arguments" -}}
  {{- $arguments := list -}}
  {{- range $value }}{{ if not (hasPrefix "--config=" .) }}{{ $arguments = append $arguments . }}{{ end }}{{ end -}}
  {{- $value = $arguments -}}
{{- else if eq (toString $as) "json" -}}
  {{- $value = fromJson $value -}}
  {{- if $value.Error }}{{ fail (printf "%s is not JSON: %s" (index . 0) $value.Error) }}{{ end -}}
{{- end -}}
{{- dict "value" $value | toJson -}}
{{- end -}}
