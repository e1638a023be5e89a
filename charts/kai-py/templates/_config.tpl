{{- define "kai-py.config" -}}
{{- $own := dict "leaderElection" (dict "namespace" .Release.Namespace) -}}
{{- mustMergeOverwrite $own (deepCopy .Values.config) | toYaml -}}
{{- end -}}
