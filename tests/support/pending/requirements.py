"""Gangs that require what nodes, devices, queues or other pods do not have; a suspended Job."""

from kai_py.observe.explanation import NO_PODS
from kai_py.plan.plan import Stage
from tests.cluster.fake_kubelet.nodes import GPU_DRIVER, gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.manifests import MIN_AVAILABLE_KEY, TEMPLATE, priority_class
from tests.support.mixtures import volume_in
from tests.support.pending.names import DATA, SPOT, claiming
from tests.support.pending.sizes import requesting
from tests.support.situations import (
    ONE_CPU,
    POOL,
    Situation,
    gpus,
    labelled,
    marked,
    nodes,
    team,
)

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
SERVING = [{**ONE_CPU, "ports": [{"containerPort": 8080, "hostPort": 9000}]}]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PATIENT = {**priority_class("patient", 1000), "preemptionPolicy": "Never"}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"job-name": "waiting"}},
}


def requiring(name: str, says: str, suggests: str, *waits: Document, **fields: object) -> Situation:
    """On one node of 8 GPUs."""
    given = {"stage": Stage.NODE_FILTERS, "pods": 1}
    fields = {**given, "waits": waits, **fields}
    return Situation(name=name, says=says, suggests=suggests, **fields)


def node_terms(**term: object) -> Document:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}


def beside(kind: str, **labels: str) -> Document:
    """On the node, or not on a node, of pods with these labels."""
    selector = {"matchLabels": {key.replace("_", "-"): value for key, value in labels.items()}}
    return {kind: {REQUIRED: [{"topologyKey": HOST, "labelSelector": selector}]}}


def tolerating(key: str = "example.com/spot", **toleration: str) -> Document:
    return gpus("waiting", 1, tolerations=[{"key": key, **toleration}])


def suspended(document: Document) -> Document:
    return {**document, "spec": {**document["spec"], "suspend": True}}


def constrained(attribute: str) -> list[Document]:
    """A Job of two devices with an equal attribute."""
    template, waiting = claiming(count=2)
    template["spec"]["spec"]["devices"]["constraints"] = [
        {"requests": ["gpu"], "matchAttribute": attribute}
    ]
    return [template, waiting]


REQUIREMENTS = (
    requiring(
        "queue-closed-to-all",
        'queue "theirs" does not accept workloads from namespace "default"',
        "let namespace default use Queue theirs (spec.namespaces)",
        gpus("waiting", 1, "theirs"),
        stage=Stage.INVALID,
        objects=[team("theirs", namespaces={"names": ["elsewhere"]})],
    ),
    requiring(
        "queue-with-children",
        'queue "company" has children',
        "use queue lab instead of company",
        gpus("waiting", 1, "company"),
        stage=Stage.QUEUE_NOT_FOUND,
        objects=[team("company"), team("lab", parent="company")],
    ),
    requiring(
        "queue-full-by-sibling",
        "Limit is 4 GPUs, currently 4 GPUs allocated",
        "set maxGPUs of Queue company to 8",
        gpus("waiting", 4, "b"),
        stage=Stage.QUEUE_MAX,
        objects=[
            team("company", maxGPUs=4),
            team("a", parent="company"),
            team("b", parent="company"),
        ],
        before=[(gpus("theirs", 4, "a"), 4)],
        pods=4,
    ),
    requiring(
        "host-port-twice",
        "only 1 can be scheduled: 1 didn't have free ports for the requested pod ports",
        "let it start with 1 of its 2 pods (min-available)",
        gpus("waiting", 2, containers=SERVING),
        stage=Stage.RESOURCES,
    ),
    requiring(
        "host-port-taken",
        "1 didn't have free ports for the requested pod ports",
        "add 1 node like node-0",
        gpus("waiting", 1, containers=SERVING),
        stage=Stage.RESOURCES,
        before=[(gpus("theirs", 1, containers=SERVING), 1)],
    ),
    requiring(
        "node-name-misspelt",
        "No node is named nod-0; did you mean node-0?",
        "correct node name nod-0 to node-0",
        gpus(
            "waiting",
            1,
            affinity=node_terms(
                matchFields=[{"key": "metadata.name", "operator": "In", "values": ["nod-0"]}]
            ),
        ),
    ),
    requiring(
        "volume-of-another-zone",
        f"Infeasible: no node that a pod may use reaches its volumes ({ZONE}=a).",
        f"remove the requirement of node label {ZONE}=b",
        gpus("waiting", 1, volumes=[DATA], nodeSelector={ZONE: "b"}),
        nodes=labelled(ZONE, "a", "b"),
        objects=[team(), *volume_in("a")],
    ),
    requiring(
        "label-value-in-capitals",
        f"No node has label {POOL}=H100; did you mean h100?",
        f"correct node label {POOL}=H100 to h100",
        gpus("waiting", 1, nodeSelector={POOL: "H100"}),
        nodes=labelled(POOL, "h100"),
    ),
    requiring(
        "two-labels-misspelt",
        f"No node has label {POOL}=h1000; did you mean h100? No node has label example.com/zon.",
        f"correct node label {POOL}=h1000 to h100 and remove the requirement of node label "
        "example.com/zon",
        gpus("waiting", 1, nodeSelector={POOL: "h1000", "example.com/zon": "a"}),
        nodes=labelled(POOL, "h100"),
    ),
    requiring(
        "other-architecture",
        "No node has label kubernetes.io/arch=arm64.",
        "remove the requirement of node label kubernetes.io/arch=arm64",
        gpus("waiting", 1, nodeSelector={"kubernetes.io/arch": "arm64"}),
        nodes=nodes(**{"kubernetes.io/arch": "amd64"}),
    ),
    requiring(
        "resource-of-no-node",
        "Infeasible: a pod requests hugepages-2Mi 4Gi; no node has any. 0/1 nodes",
        "remove the request of hugepages-2Mi, which no node reports",
        requesting("waiting", 1, limits=True, hugepages_2Mi="4Gi", cpu="1"),
        stage=Stage.RESOURCES,
    ),
    requiring(
        "memory-in-tebibytes",
        "Infeasible: a pod requests memory 64Ti; the only node has 1Ti.",
        "request memory 1Ti instead of 64Ti, the most that a node has",
        requesting("waiting", 1, memory="64Ti"),
        stage=Stage.RESOURCES,
    ),
    requiring(
        "toleration-of-another-value",
        "1 had untolerated taint {example.com/spot: true}",
        "tolerate the taint example.com/spot=true:NoSchedule",
        tolerating(operator="Equal", value="yes", effect="NoSchedule"),
        nodes=[SPOT],
    ),
    requiring(
        "toleration-of-another-effect",
        "A toleration of taint example.com/spot=true:NoSchedule would admit 1 node.",
        "tolerate the taint example.com/spot=true:NoSchedule",
        tolerating(operator="Exists", effect="NoExecute"),
        nodes=[SPOT],
    ),
    requiring(
        "toleration-misspelt",
        "A toleration of taint example.com/spot=true:NoSchedule would admit 1 node.",
        "tolerate the taint example.com/spot=true:NoSchedule",
        tolerating("example.com/sopt", operator="Exists"),
        nodes=[SPOT],
    ),
    requiring(
        "never-preempts",
        "1 Insufficient nvidia.com/gpu (1 requested, most free 0 on node-0)",
        "add 1 node like node-0",
        gpus("waiting", 4, priorityClassName="patient"),
        stage=Stage.RESOURCES,
        objects=[team(), PATIENT, priority_class("low", 1)],
        before=[(gpus("theirs", 8, priorityClassName="low"), 8)],
        pods=4,
    ),
    requiring(
        "more-members-than-pods",
        "minMember 4 can never be reached: at most 2 pods exist at once",
        "let it start with 2 of its 4 pods (min-available)",
        marked(gpus("waiting", 2), annotations={MIN_AVAILABLE_KEY: "4"}),
        stage=Stage.INVALID,
        pods=2,
    ),
    requiring(
        "suspended",
        "it has no pods: it is suspended (spec.suspend)",
        "resume Job waiting (spec.suspend: false)",
        suspended(gpus("waiting", 2)),
        stage=NO_PODS,
        pods=2,
    ),
    requiring(
        "apart-from-itself",
        "3 pods must start together but only 2 can be scheduled: "
        "2 didn't match pod anti-affinity rules",
        "let it start with 2 of its 3 pods (min-available)",
        gpus("waiting", 3, affinity=beside("podAntiAffinity", job_name="waiting")),
        nodes=nodes(2),
        pods=2,
    ),
    requiring(
        "beside-no-pod",
        "1 didn't match pod affinity rules",
        "remove its pod affinity",
        gpus("waiting", 1, affinity=beside("podAffinity", app="database")),
    ),
    requiring(
        "spread-over-no-label",
        f"No node has label {ZONE}.",
        f"only prefer to spread it over {ZONE} (ScheduleAnyway)",
        gpus("waiting", 2, topologySpreadConstraints=[SPREAD]),
        pods=2,
    ),
    requiring(
        "constraint-misspelt",
        f"No device publishes attribute {GPU_DRIVER}/productNam; "
        f"did you mean attribute {GPU_DRIVER}/productName?",
        f"correct attribute {GPU_DRIVER}/productNam to attribute {GPU_DRIVER}/productName in "
        f"ResourceClaimTemplate {TEMPLATE}",
        *constrained(f"{GPU_DRIVER}/productNam"),
        stage=Stage.DEVICES,
        nodes=gpu_nodes(1, published_gpus=4),
    ),
    requiring(
        "requested-capacity-misspelt",
        f"No device publishes capacity memry; did you mean capacity {GPU_DRIVER}/memory?",
        f"correct capacity memry to capacity {GPU_DRIVER}/memory in "
        f"ResourceClaimTemplate {TEMPLATE}",
        *claiming(capacity={"requests": {"memry": "10Gi"}}),
        stage=Stage.DEVICES,
        nodes=gpu_nodes(1, published_gpus=4),
    ),
)
