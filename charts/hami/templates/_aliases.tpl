{{/* HAMi's names for values, made ours by the table aliases.yaml before anything else reads .Values.

Every template begins with "hami.translate"; the first of them does it, for all share one .Values. */}}

{{- define "hami.translate" -}}
{{- if not (hasKey .Values "hamiNotes") -}}
{{- $table := .Files.Get "aliases.yaml" | fromYaml -}}
{{- $theirs := .Files.Get "ci/hami-2.10-values.yaml" | fromYaml -}}
{{- $defaults := .Files.Get "alias-defaults.json" | fromJson -}}
{{- $given := deepCopy .Values -}}
{{- $notes := list -}}
{{- range $old, $reason := $table.refused -}}
  {{- $found := include "hami.found" (list $given $theirs $old) | fromJson -}}
  {{- if and $found.isGiven (not $found.isDefault) -}}
    {{- fail (printf "%s=%v cannot be kept: %s" $old $found.value $reason) -}}
  {{- end -}}
{{- end -}}
{{- range $old, $reason := $table.ignored -}}
  {{- $found := include "hami.found" (list $given $theirs $old) | fromJson -}}
  {{- if and $found.isGiven (not $found.isDefault) -}}
    {{- $notes = append $notes (printf "%s has no effect: %s" $old $reason) -}}
  {{- end -}}
{{- end -}}
{{- range $old, $reason := $table.replaced -}}
  {{- $value := include "hami.at" (list $given $old) -}}
  {{- if eq $value (include "hami.at" (list $theirs $old)) -}}
    {{- include "hami.put" (list $.Values $old (index $defaults $old)) -}}
    {{- $notes = append $notes (printf "%s has no effect: %s" $old $reason) -}}
  {{- end -}}
{{- end -}}
{{- range $old, $row := $table.renamed -}}
  {{- $found := include "hami.found" (list $given $theirs $old) | fromJson -}}
  {{- if and $found.isGiven (not (and $found.isDefault $row.unlessDefault)) -}}
    {{- $value := (include "hami.as" (list $old $row.as $found.value) | fromJson).value -}}
    {{- $new := (include "hami.at" (list $.Values $row.to) | fromJson).value -}}
    {{- if kindIs "invalid" $value -}}
    {{- else if has (toJson $new) (list (index $defaults $row.to | toJson) (toJson $value)) -}}
      {{- include "hami.put" (list $.Values $row.to $value) -}}
      {{- if not $found.isDefault }}{{ $notes = append $notes (printf "%s is %s here" $old $row.to) }}{{ end -}}
    {{- else if not $found.isDefault -}}
      {{- fail (printf "%s=%s and %s=%s are one value, whose name is %s here: remove %s" $old (toJson $found.value) $row.to (toJson $new) $row.to $old) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $_ := set .Values "hamiNotes" $notes -}}
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
and an empty one says nothing. Argument: (list values theirs "a.b.c"). */}}
{{- define "hami.found" -}}
{{- $value := (include "hami.at" (list (index . 0) (index . 2)) | fromJson).value -}}
{{- $theirs := (include "hami.at" (list (index . 1) (index . 2)) | fromJson).value -}}
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
