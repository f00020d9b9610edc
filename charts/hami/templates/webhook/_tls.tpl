{{/* The webhook's certificate: created by the webhook, by cert-manager, or given. */}}

{{/* The Secret with the certificate. */}}
{{- define "hami.tlsSecret" -}}
{{- default (printf "%s-webhook-tls" (include "hami.fullname" .)) .Values.webhook.tls.secretName -}}
{{- end -}}

{{/* The name that the API server calls and compares with the certificate. */}}
{{- define "hami.tlsName" -}}
{{ include "hami.fullname" . }}-webhook.{{ include "hami.namespace" . }}.svc
{{- end -}}

{{- define "hami.tlsArguments" -}}
{{- if eq .Values.webhook.tls.mode "self" -}}
- --tls-secret={{ include "hami.namespace" . }}/{{ include "hami.tlsSecret" . }}
- --tls-names={{ include "hami.tlsName" . }}
{{- else -}}
- --cert_file=/tls/tls.crt
- --key_file=/tls/tls.key
{{- end }}
- --webhook-configuration={{ include "hami.fullname" . }}-webhook
{{- end -}}

{{/* Fail for values that contradict each other, and name the fix. */}}
{{- define "hami.checkTls" -}}
{{- $tls := .Values.webhook.tls -}}
{{- if and (eq $tls.mode "given") (not $tls.caBundle) -}}
{{- fail (printf "webhook.tls.caBundle is empty: set it to the PEM certificate authority, in base64, that signed tls.crt in Secret %s (for %s), or set webhook.tls.mode=self" (include "hami.tlsSecret" .) (include "hami.tlsName" .)) -}}
{{- end -}}
{{- if and (ne $tls.mode "given") $tls.caBundle -}}
{{- fail (printf "webhook.tls.caBundle is set, but webhook.tls.mode=%s creates its own: set webhook.tls.mode=given, or remove caBundle" $tls.mode) -}}
{{- end -}}
{{- if and (ne $tls.mode "cert-manager") $tls.issuerRef -}}
{{- fail (printf "webhook.tls.issuerRef is set, but webhook.tls.mode=%s does not use it: set webhook.tls.mode=cert-manager, or remove issuerRef" $tls.mode) -}}
{{- end -}}
{{- end -}}
