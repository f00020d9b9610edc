{{/* A selector of everything without the label hami.io/webhook=ignore. Argument: (list selector ignoredNamespaces). */}}
{{- define "hami.webhookSelector" -}}
{{- with (index . 0).matchLabels -}}
matchLabels:
  {{- toYaml . | nindent 2 }}
{{ end -}}
matchExpressions:
  - {key: hami.io/webhook, operator: NotIn, values: [ignore]}
  {{- with index . 1 }}
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ toJson . }}}
  {{- end }}
  {{- with (index . 0).matchExpressions }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
