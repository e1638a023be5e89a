{{- define "kai-py.config" -}}
{{- $own := dict "openQueues" false "leaderElection" (dict "namespace" .Release.Namespace) -}}
{{- if .Values.webhook.enabled -}}
{{- $_ := set $own "webhook" (dict "namespace" .Release.Namespace) -}}
{{- end -}}
{{- mustMergeOverwrite $own (deepCopy .Values.config) | toYaml -}}
{{- end -}}
