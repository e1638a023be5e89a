{{- define "kai-py.config" -}}
{{- $own := dict "leaderElection" (dict "namespace" .Release.Namespace) -}}
{{- if .Values.webhook.enabled -}}
{{- $_ := set $own "webhook" (dict "namespace" .Release.Namespace) -}}
{{- end -}}
{{- mustMergeOverwrite $own (deepCopy .Values.config) | toYaml -}}
{{- end -}}
