{{- define "kai-py.defaults" }}
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
{{- end }}
