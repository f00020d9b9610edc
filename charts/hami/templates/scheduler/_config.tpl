{{/* What kube-scheduler is told: one profile, and the extender in the same Pod. */}}
{{- define "hami.kubeSchedulerConfig" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceName: {{ .Values.schedulerName }}
  resourceNamespace: {{ .Release.Namespace }}
percentageOfNodesToScore: 100
profiles:
  - schedulerName: {{ .Values.schedulerName }}
extenders:
  - urlPrefix: http://127.0.0.1:8080
    filterVerb: filter
    bindVerb: bind
    nodeCacheCapable: true
    weight: 1
    httpTimeout: 30s
    managedResources:
      {{- range list .Values.resourceName .Values.resourceMem .Values.resourceMemPercentage .Values.resourceCores .Values.resourcePriority }}
      - name: {{ . }}
        ignoredByScheduler: true
      {{- end }}
{{- end -}}
