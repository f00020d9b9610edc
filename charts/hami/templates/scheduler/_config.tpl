{{/* kube-scheduler's configuration: one profile, and the extender in the same Pod.

leaseDuration: a standby checks every 2 to 4.4 s and takes over after 14.4 s at most; with kube-scheduler's default, 19.4 s.
percentageOfNodesToScore: the extender ranks Nodes by their grants, so it needs all of them.
podMaxBackoffSeconds: a waiting Pod is retried within seconds, even if the queue's feature gate for this is off.
clientConnection: kube-scheduler's default of 50 requests a second is below the rate at which it places Pods here. */}}
{{- define "hami.kubeSchedulerConfig" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  qps: 1000
  burst: 2000
leaderElection:
  leaderElect: true
  leaseDuration: 10s
  renewDeadline: 7s
  resourceName: {{ .Values.schedulerName }}
  resourceNamespace: {{ include "hami.namespace" . }}
percentageOfNodesToScore: 100
podMaxBackoffSeconds: 2
profiles:
  - schedulerName: {{ .Values.schedulerName }}
extenders:
  - urlPrefix: http://127.0.0.1:8080
    filterVerb: filter
    bindVerb: bind
    preemptVerb: preempt
    {{- with .Values.scheduler.prioritizeWeight }}
    prioritizeVerb: prioritize
    weight: {{ . }}
    {{- end }}
    nodeCacheCapable: true
    httpTimeout: 30s
    managedResources:
      {{- range include "hami.managedNames" . | fromJsonArray }}
      - name: {{ . }}
        ignoredByScheduler: true
      {{- end }}
{{- end -}}

{{/* Labels of the Nodes to use, in the form of the flag: k=v,... */}}
{{- define "hami.nodeLabelSelector" -}}
{{- $pairs := list -}}
{{- range $key, $value := .Values.scheduler.nodeLabelSelector }}{{ $pairs = append $pairs (printf "%s=%s" $key $value) }}{{ end -}}
{{- join "," $pairs -}}
{{- end -}}
