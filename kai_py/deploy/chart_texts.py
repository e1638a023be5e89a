"""Texts of the chart that are written by hand: values, NOTES, README, and what only a chart has."""

HELPERS = """\
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
# Container image whose entry point is kai-py; docs/install.md says how to build it.
image: ""
imagePullSecrets: []
crds:
  # Install and upgrade the CRD of Queues with the chart.
  install: true
# One replica schedules, the others are standbys.
replicas: 2
# The process has 540 MiB resident with 10,000 nodes and 100,000 pods of 7 KB (docs/benchmarks.md),
# and nothing in it grows with the pods that ever were. The limit leaves 0.5 GiB for reading
# all pods once more after a broken watch and 1 GiB for caches, which are bounded. Raise it in
# proportion to the pods of the cluster where there are more than 200,000.
resources:
  requests: {cpu: 500m, memory: 512Mi}
  limits: {memory: 2Gi}
priorityClassName: system-cluster-critical
nodeSelector: {}
tolerations: []
# In place of the preference for different nodes.
affinity: {}
podAnnotations: {}
podLabels: {}
serviceAccountAnnotations: {}
# Environment of the scheduler and the webhooks: a proxy, or KAI_PY_HTTP_TOKEN from a Secret.
env: []
envFrom: []
# Further volumes, such as a Secret with the file of http.tokenFile, and where they are mounted.
extraVolumes: []
extraVolumeMounts: []
# Further node pools, each with a Deployment and a Lease of its own (docs/nodes.md).
nodePools: []
# Further arguments of `kai-py run`.
extraArgs: []
# The dashboard outside of the cluster. It asks for a token where it is not read from loopback
# (docs/dashboard.md). An Ingress, or a route of the Gateway API.
ingress:
  enabled: false
  className: ""
  host: ""
  annotations: {}
  tls: []
route:
  enabled: false
  hostnames: []
  parentRefs: []
# Allows only metrics, probes and the dashboard.
networkPolicy: true
# Policies by which tenants can't write what the scheduler writes, and its account nothing else.
admissionPolicies: true
# Rights of the scheduler's account that may be left out, and with them what needs them: binding
# volumes without a provisioner, ProvisioningRequests, and keeping autoscalers from removing nodes
# that are promised to pods.
rights:
  localVolumes: true
  provisioning: true
  promisedNodes: true
readers:
  # All users whom the API server knows may ask the scheduler through it, and sees what own rights
  # allow (docs/dashboard.md). Without it only those whom you bind to the Role kai-py-proxy.
  throughApiServer: true
gpuSharing:
  # What reservation pods of shared GPUs need (docs/gpu-sharing.md): their account, and the right to
  # create them. Their namespace is KAI-Scheduler's, which may exist already.
  enabled: true
  createNamespace: true
# The first three need the CRDs of the Prometheus operator, the last Grafana's sidecar. Of the two
# monitors one is enough.
monitoring:
  serviceMonitor: false
  podMonitor: false
  rules: false
  dashboards: false
  # Where the pages of docs/runbooks are served; alerts then carry runbook_url.
  runbookURL: ""
# The API of KAI-Scheduler, where KAI is not installed: its CRDs, priority classes and default
# queues, and rules: kai, unless config says otherwise (docs/migrate-from-kai.md).
withKaiApi: false
# The scheduler's configuration; `kai-py run --config` reads the same file.
config: {}
webhook:
  # Defaults for pods of namespaces with the label scheduling.kai.io/admission: enabled, and checks
  # of queues before they are stored; docs/webhook.md.
  enabled: false
"""

INGRESS = """\
{{- if (.Values.ingress).enabled }}
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
{{- if (.Values.route).enabled }}
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
{{ .Chart.Name }} {{ .Chart.AppVersion }} runs in namespace {{ .Release.Namespace }}.

It places pods with schedulerName {{ dig "schedulerName" "kai-scheduler" .Values.config }}. Create
a Queue, and name it in the annotation scheduling.kai.io/queue-name of a Job:

    kubectl apply -f - <<EOF
    apiVersion: scheduling.kai.io/v1alpha1
    kind: Queue
    metadata: {name: team-a}
    spec: {deservedGPUs: 8}
    EOF
    kai-py queues

The dashboard:

    kubectl -n {{ .Release.Namespace }} port-forward deployment/kai-py 8080:http
{{- if not .Values.admissionPolicies }}

admissionPolicies is false: tenants may write what the scheduler writes on pods (docs/security.md).
{{- end }}
"""
README_HEAD = """\
# kai-py

A scheduler for gangs of GPU work on Kubernetes.

    helm install kai-py charts/kai-py --namespace kai-py --create-namespace --set image=IMAGE
    helm upgrade kai-py charts/kai-py --namespace kai-py --reuse-values

The CRD of Queues is one of the templates, so that an upgrade of the chart upgrades it; Helm would
leave one in the directory `crds` as it was installed. It is kept when the release is deleted, since
all Queues would be deleted with it. A CRD that was applied before by other means is taken over with
`--take-ownership`; with `crds.install=false`, apply `kai-py crds` yourself before each upgrade.

## Values

The file with the defaults and a comment for each value is `values.yaml`; `values.schema.json`
rejects values that do not exist.

| value | default |
| --- | --- |
"""
