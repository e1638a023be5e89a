"""Texts of the chart that are written by hand: values, NOTES, README, and what only a chart has."""

HELPERS = """\
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
{{- $found := lookup (index . 1) (index . 2) "" (index . 3) | default dict -}}
{{- $owner := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $found -}}
{{- if or (not $found) (eq $owner (index . 0).Release.Name) -}}
true
{{- end -}}
{{- end -}}
"""

VALUES = """\
# Container image whose entry point is kai-py; docs/install.md says how to build it. Required.
image: ""
# Secrets with which the image is pulled.
imagePullSecrets: []
# Name of the objects instead of kai-py. Objects of the webhooks and of reservation pods keep their
# names. Set KAI_PY_SERVICE=NAMESPACE/NAME then, so that the command line finds the scheduler.
fullnameOverride: ""
crds:
  # Install and upgrade the CRD of Queues with the chart.
  install: true
# Replicas: one schedules, the others are standbys.
replicas: 2
resources:
  # Requests of the scheduler's container.
  requests: {cpu: 500m, memory: 512Mi}
  # Its limits. The process has 540 MiB resident with 10,000 nodes and 100,000 pods of 7 KB
  # (docs/benchmarks.md), and does not grow with the pods that have ever existed. The limit leaves
  # 0.5 GiB for reading all pods once more after a broken watch and 1 GiB for caches, which are
  # bounded. Raise it in proportion to the pods of the cluster above 200,000.
  limits: {memory: 2Gi}
# PriorityClass of the pods.
priorityClassName: system-cluster-critical
# Nodes that the pods may use.
nodeSelector: {}
# Taints that the pods tolerate.
tolerations: []
# Affinity of the pods, in place of the preference for different nodes.
affinity: {}
# Annotations of the pods.
podAnnotations: {}
# Labels of the pods.
podLabels: {}
# Annotations of the ServiceAccounts.
serviceAccountAnnotations: {}
# Environment of the scheduler and the webhooks: a proxy, or KAI_PY_HTTP_TOKEN from a Secret.
env: []
# Environment from Secrets and ConfigMaps.
envFrom: []
# Further volumes, such as a Secret with the file of http.tokenFile.
extraVolumes: []
# Where those volumes are mounted.
extraVolumeMounts: []
# Further node pools, each with a Deployment and a Lease of its own (docs/nodes.md).
nodePools: []
# Further arguments of `kai-py run`.
extraArgs: []
# Access to the dashboard from outside the cluster, for which it requires a token
# (docs/dashboard.md).
ingress:
  # Create an Ingress.
  enabled: false
  # Its IngressClass; by default that of the cluster.
  className: ""
  # Its host name.
  host: ""
  # Its annotations.
  annotations: {}
  # Its `tls`: host names and the Secrets with their certificates.
  tls: []
route:
  # Create an HTTPRoute of the Gateway API.
  enabled: false
  # Its host names.
  hostnames: []
  # The Gateways that it is attached to.
  parentRefs: []
# A NetworkPolicy that allows only metrics, probes and the dashboard.
networkPolicy: true
# Policies that reserve the scheduler's fields to it and restrict its account to them.
admissionPolicies: true
# Rights of the scheduler's account that may be left out, with the features that need them.
rights:
  # Bind volumes without a provisioner.
  localVolumes: true
  # Create ProvisioningRequests.
  provisioning: true
  # Keep autoscalers from removing nodes that are promised to pods.
  promisedNodes: true
readers:
  # Let all authenticated users query the scheduler through the API server; they see what their own
  # rights allow (docs/dashboard.md). If false, only users bound to the Role kai-py-proxy may do so.
  throughApiServer: true
gpuSharing:
  # Create what reservation pods of shared GPUs need (docs/gpu-sharing.md): their account, and the
  # right to create them.
  enabled: true
  # Create their namespace; it is also KAI-Scheduler's and may exist already.
  createNamespace: true
# Objects for Prometheus and Grafana. One of the two monitors is enough.
monitoring:
  # Create a ServiceMonitor; needs the CRDs of the Prometheus operator.
  serviceMonitor: false
  # Create a PodMonitor; needs the same CRDs.
  podMonitor: false
  # Create a PrometheusRule with recording rules and alerts; needs the same CRDs.
  rules: false
  # Labels of these three, if Prometheus selects by label: {release: prometheus}.
  labels: {}
  # Create a ConfigMap with the dashboards, for Grafana's sidecar.
  dashboards: false
  # URL at which the pages of docs/runbooks are served; alerts then have runbook_url.
  runbookURL: ""
# The API of KAI-Scheduler, for clusters without KAI: its CRDs, priority classes and default queues,
# and rules: kai, unless config says otherwise (docs/migrate-from-kai.md).
withKaiApi: false
# The scheduler's configuration, as `kai-py run --config` reads it
# (docs/reference/configuration.md).
config: {}
webhook:
  # Defaults for pods of namespaces with the label scheduling.kai.io/admission: enabled, and checks
  # of queues before they are stored; docs/webhook.md.
  enabled: false
"""

INGRESS = """\
{{- if .Values.ingress.enabled }}
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: kai-py
  namespace: {{ .Release.Namespace }}
  labels:
    app.kubernetes.io/name: kai-py
  annotations: {{ toJson .Values.ingress.annotations }}
spec:
  {{- with .Values.ingress.className }}
  ingressClassName: {{ quote . }}
  {{- end }}
  tls: {{ toJson .Values.ingress.tls }}
  rules:
  - host: {{ quote .Values.ingress.host }}
    http:
      paths:
      - path: /
        pathType: Prefix
        backend:
          service:
            name: kai-py
            port:
              name: http
{{- end }}
"""
ROUTE = """\
{{- if .Values.route.enabled }}
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: kai-py
  namespace: {{ .Release.Namespace }}
  labels:
    app.kubernetes.io/name: kai-py
spec:
  parentRefs: {{ toJson .Values.route.parentRefs }}
  hostnames: {{ toJson .Values.route.hostnames }}
  rules:
  - backendRefs:
    - name: kai-py
      port: {{ dig "http" "port" 8080 .Values.config }}
{{- end }}
"""
NOTES = """\
{{- include "kai-py.values" . -}}
{{- $scheduler := dig "schedulerName" "kai-scheduler" .Values.config -}}
{{- $name := default "kai-py" .Values.fullnameOverride -}}
{{- $service := printf "%s/%s" .Release.Namespace $name -}}
{{ .Chart.Name }} {{ .Chart.AppVersion }} is installed in namespace {{ .Release.Namespace }}.
Wait until it is ready:

    kubectl -n {{ .Release.Namespace }} rollout status deployment/{{ $name }}

It places pods with schedulerName: {{ $scheduler }}. Create a Queue for the namespaces that may use
it, and name it in the annotation scheduling.kai.io/queue-name of a Job:

    kubectl apply -f - <<EOF
    apiVersion: scheduling.kai.io/v1alpha1
    kind: Queue
    metadata: {name: team-a}
    spec: {deservedGPUs: 8, namespaces: {names: [default]}}
    EOF
{{- if ne $service "kai-py/kai-py" }}
    export KAI_PY_SERVICE={{ $service }}     # where kai-py finds the scheduler
{{- end }}
    kai-py queues

The dashboard, at http://127.0.0.1:8080:

    kubectl -n {{ .Release.Namespace }} port-forward deployment/{{ $name }} 8080:http
{{- if not .Values.admissionPolicies }}

admissionPolicies is false: tenants can write the fields of pods that are reserved to the scheduler
(docs/security.md).
{{- end }}
"""
README_HEAD = """\
# kai-py

A gang scheduler for GPU workloads on Kubernetes. You build the image yourself (docs/install.md).

    helm install kai-py charts/kai-py --namespace kai-py --create-namespace --set image=IMAGE
    helm upgrade kai-py charts/kai-py --namespace kai-py --reuse-values --set image=NEW-IMAGE

With `--reuse-values`, values that the earlier chart did not have take their defaults.

The CRD of Queues is one of the templates, so that an upgrade of the chart upgrades it; Helm never
upgrades CRDs in the directory `crds`. The CRD is kept when the release is deleted, because all
Queues would be deleted with it. A CRD that was applied by other means is taken over with
`--take-ownership`; with `crds.install=false`, apply `kai-py crds` yourself before each upgrade.

## Values

Generated from `values.yaml`; `values.schema.json` rejects values that do not exist.

| value | default | meaning |
| --- | --- | --- |
"""
