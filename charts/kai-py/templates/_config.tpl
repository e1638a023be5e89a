{{- define "kai-py.values" -}}
{{- /* With --reuse-values, values that the earlier chart lacked are absent. */ -}}
{{- range $name, $default := include "kai-py.defaults" . | fromYaml -}}
{{- $value := index $.Values $name -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := set $.Values $name $default -}}
{{- else if and (kindIs "map" $default) (ne $name "resources") -}}
{{- range $key, $each := $default -}}
{{- if not (hasKey $value $key) -}}
{{- $_ := set $value $key $each -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- define "kai-py.config" -}}
{{- $own := dict "leaderElection" (dict "namespace" .Release.Namespace) -}}
{{- if .Values.webhook.enabled -}}
{{- $_ := set $own "webhook" (dict "namespace" .Release.Namespace) -}}
{{- end -}}
{{- if .Values.withKaiApi -}}
{{- $_ := set $own "rules" "kai" -}}
{{- end -}}
{{- mustMergeOverwrite $own (deepCopy .Values.config) | toYaml -}}
{{- end -}}
{{- define "kai-py.mayMake" -}}
{{- /* Nothing has made this object, or this release has. */ -}}
{{- $found := dict -}}
{{- /* Looking up a kind that is not served is an error. */ -}}
{{- if (index . 0).Capabilities.APIVersions.Has (printf "%s/%s" (index . 1) (index . 2)) -}}
{{- $found = lookup (index . 1) (index . 2) "" (index . 3) | default dict -}}
{{- end -}}
{{- $owner := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $found -}}
{{- if or (not $found) (eq $owner (index . 0).Release.Name) -}}
true
{{- end -}}
{{- end -}}
