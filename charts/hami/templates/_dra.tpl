{{/* Nodes whose devices are shared by ResourceClaims (dynamic resource allocation). */}}

{{/* The driver, and the DeviceClass that HAMi's claims name. */}}
{{- define "hami.draDriver" -}}
hami-core-gpu.project-hami.io
{{- end -}}

{{/* The DeviceClass of MIG instances. */}}
{{- define "hami.migClass" -}}
hami-mig.project-hami.io
{{- end -}}

{{/* The DeviceClass of tokens, which maps the count of devices. */}}
{{- define "hami.tokenClass" -}}
hami-token.project-hami.io
{{- end -}}

{{/* Fail for ResourceClaims on a Kubernetes that cannot share a device among them. The gates are on by default since 1.36.
Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/features/kube_features.go */}}
{{- define "hami.checkDra" -}}
{{- $version := .Capabilities.KubeVersion.Version -}}
{{- if and .Values.dra.extendedResource (not .Values.dra.enabled) -}}
  {{- fail "dra.extendedResource=true lets Nodes of kind dra serve Pods that ask for resources: set dra.enabled=true as well" -}}
{{- end -}}
{{- if and .Values.dra.enabled (semverCompare "<1.34.0-0" $version) -}}
  {{- fail (printf "dra.enabled=true needs Kubernetes 1.36, and this is %s: set dra.enabled=false; Pods get shares by %s" $version .Values.resourceName) -}}
{{- else if and .Values.dra.enabled (not .Values.dra.featureGates) (semverCompare "<1.36.0-0" $version) -}}
  {{- fail (printf "dra.enabled=true needs Kubernetes 1.36, and in %s the feature gates DRAConsumableCapacity and DRADeviceTaints are off by default: set dra.enabled=false, or switch both on in kube-apiserver, kube-scheduler, kube-controller-manager and every kubelet, and set dra.featureGates=true" $version) -}}
{{- end -}}
{{- end -}}

{{/* An affinity that also keeps Pods on Nodes of one kind: it adds the kind to each alternative of the given one.
Argument: (list $ affinity kind). */}}
{{- define "hami.kindAffinity" -}}
{{- $dra := (index . 0).Values.dra -}}
{{- $affinity := deepCopy (index . 1) -}}
{{- $kind := index . 2 -}}
{{- if $dra.enabled -}}
  {{- $condition := dict "key" "hami.io/node-kind" "operator" "In" "values" (list $kind) -}}
  {{- if eq $kind $dra.defaultKind -}}
    {{- $condition = dict "key" "hami.io/node-kind" "operator" "NotIn" "values" (list (ternary "plugin" "dra" (eq $kind "dra"))) -}}
  {{- end -}}
  {{- $terms := list -}}
  {{- range dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" (list dict) $affinity -}}
    {{- $terms = append $terms (merge (dict "matchExpressions" (append (default list .matchExpressions) $condition)) .) -}}
  {{- end -}}
  {{- $required := dict "nodeSelectorTerms" $terms -}}
  {{- $_ := set $affinity "nodeAffinity" (merge (dict "requiredDuringSchedulingIgnoredDuringExecution" $required) (default dict $affinity.nodeAffinity)) -}}
{{- end -}}
{{- include "hami.yaml" $affinity -}}
{{- end -}}
