{{/* What kube-scheduler is told: one profile, and the extender in the same Pod.

leaseDuration: a standby looks every 2 to 4.4 s, so that it takes over after 14.4 s at most; with kube-scheduler's own, 19.4.
percentageOfNodesToScore: the extender ranks Nodes by what is granted on them, so it must be asked about all of them.
podMaxBackoffSeconds: room that appears is used within seconds, also where the queue's gate for that is off.
clientConnection: kube-scheduler's own default is 50 requests a second, fewer than it binds Pods here. */}}
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

{{/* Labels of the Nodes that are offered, as a flag takes them: k=v,... */}}
{{- define "hami.nodeLabelSelector" -}}
{{- $pairs := list -}}
{{- range $key, $value := .Values.scheduler.nodeLabelSelector }}{{ $pairs = append $pairs (printf "%s=%s" $key $value) }}{{ end -}}
{{- join "," $pairs -}}
{{- end -}}
