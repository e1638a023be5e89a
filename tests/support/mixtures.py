"""Gangs that wait for reasons that meet: several stages, other resources, KAI's own queues.

As in ``tests.support.situations``: what a user would submit, for the simulation and for API
servers.
"""

from kai_py.plan.plan import Stage
from tests.cluster.fake_kubelet.nodes import GPU_DRIVER, FakeNode, gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.kai_definitions import KINDS, definition
from tests.support.cluster.manifests import (
    MIN_AVAILABLE_KEY,
    QUEUE_KEY,
    TEMPLATE,
    claim_template,
    gpu_request,
    job,
    pod_spec,
)
from tests.support.records import replace
from tests.support.situations import (
    FITTING,
    GATE,
    POOL,
    RACK,
    STRANGE,
    Situation,
    crew,
    gpus,
    in_queue,
    labelled,
    marked,
    nodes,
    team,
)

ZONE = "topology.kubernetes.io/zone"
KAI_QUEUES = definition(*KINDS[0])
OPEN = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
KAI_LABELS = {
    "kai.scheduler/queue": "team",
    "kai.scheduler/preemptibility": "non-preemptible",
}


def kai_queue(name: str = "team", **resources: Document) -> Document:
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"resources": {"cpu": OPEN, "memory": OPEN, "gpu": OPEN, **resources}},
    }


def cores(name: str, size: int, *, cpu: str = "1", memory: str = "1Gi", **spec: object) -> Document:
    """A Job of pods without GPUs."""
    requests = {"requests": {"cpu": cpu, "memory": memory}}
    container = {"name": "main", "image": "none", "resources": requests}
    return job(name, size, pod_spec(containers=[container], **spec), annotations=in_queue("team"))


def in_kai_queue(document: Document, floor: int) -> Document:
    document["metadata"]["annotations"] = {"kai.scheduler/batch-min-member": str(floor)}
    return marked(document, labels=KAI_LABELS)


def volume_in(zone: str) -> list[Document]:
    """A volume of a zone and the claim that has it."""
    field = {"key": ZONE, "operator": "In", "values": [zone]}
    held = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data"}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "disk"},
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "zonal",
                "csi": {"driver": "disks.example.com", "volumeHandle": "disk"},
                "nodeAffinity": {
                    "required": {"nodeSelectorTerms": [{"matchExpressions": [field]}]}
                },
                "claimRef": held,
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {
                "storageClassName": "zonal",
                "volumeName": "disk",
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    ]


def budget(name: str, min_available: int, labels: Document) -> Document:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": labels}},
    }


DATA = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
PORT = {"name": "main", "image": "none", "ports": [{"containerPort": 80, "hostPort": 8080}]}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchExpressions": [{"key": "job-name", "operator": "Exists"}]},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}
FOUR_FREE = nodes(each=4)
TAINT = {"key": "example.com/reserved", "value": "yes", "effect": "NoSchedule"}

MIXTURES = (
    Situation(
        name="gate-before-max",
        stage=Stage.SCHEDULING_GATED,
        objects=[team(maxGPUs=1)],
        waits=[gpus("waiting", 2, schedulingGates=[{"name": GATE}])],
        pods=2,
        says="gated pods: 2",
        suggests=f"remove the scheduling gate {GATE} from its pods, and set maxGPUs of Queue "
        "team to 2",
    ),
    Situation(
        name="max-before-selector",
        stage=Stage.QUEUE_MAX,
        nodes=labelled(POOL, "h100"),
        objects=[team("company", maxGPUs=2), team(maxGPUs=3, parent="company")],
        waits=[gpus("waiting", 4, nodeSelector={POOL: "h200"})],
        pods=4,
        says="team quota has reached the allowable limit of GPUs. Limit is 3 GPUs",
        suggests="set maxGPUs of Queue team to 4 and maxGPUs of Queue company to 4, and correct "
        f"node label {POOL}=h200 to h100",
    ),
    Situation(
        name="queue-before-members",
        stage=Stage.QUEUE_NOT_FOUND,
        objects=[],
        waits=crew(3, floor=4),
        gang="default/PodGroup/waiting",
        pods=3,
        says='queue "team" does not exist; create it',
        suggests="create the Queue team, and let it start with 3 of its 4 pods (min-available)",
    ),
    Situation(
        name="cpu-max",
        stage=Stage.QUEUE_MAX,
        objects=[team(resources={"cpu": {"max": "2500m"}, "memory": {"max": "2Gi"}})],
        waits=[cores("waiting", 4, cpu="1500m")],
        pods=4,
        says="team quota has reached the allowable limit of CPU cores. Limit is 2.5 CPU cores",
        suggests="set resources.cpu.max of Queue team to 6 and resources.memory.max of Queue "
        "team to 4Gi",
    ),
    Situation(
        name="devices-of-an-ancestor",
        stage=Stage.QUEUE_MAX,
        nodes=gpu_nodes(1, published_gpus=8),
        objects=[
            team(
                "company",
                devices=[
                    {"name": "cards", "deviceClassName": GPU_DRIVER, "max": 2},
                    {"name": "other", "deviceClassName": "other.example.com", "max": 2},
                ],
            ),
            team(parent="company"),
            claim_template(),
        ],
        waits=[job("waiting", 4, pod_spec(template=TEMPLATE), annotations=in_queue("team"))],
        pods=4,
        says=f"company quota has reached the allowable limit of devices of class {GPU_DRIVER}",
        suggests="set devices.cards.max of Queue company to 4",
    ),
    Situation(
        name="kai-non-preemptible",
        stage=Stage.NON_PREEMPTIBLE,
        definitions=[KAI_QUEUES],
        objects=[kai_queue(gpu={"quota": 2, "limit": 3, "overQuotaWeight": 1})],
        waits=[in_kai_queue(gpus("waiting", 3), floor=3)],
        pods=3,
        says="team quota is 2 GPUs",
        suggests="set resources.gpu.quota of Queue team to 3",
    ),
    Situation(
        name="kai-memory-limit",
        stage=Stage.QUEUE_MAX,
        definitions=[KAI_QUEUES],
        objects=[kai_queue(memory={"quota": -1, "limit": 4000, "overQuotaWeight": 1})],
        waits=[in_kai_queue(cores("waiting", 2, memory="4Gi"), floor=2)],
        pods=2,
        says="team quota has reached the allowable limit of GB memory. Limit is 4 GB memory",
        suggests="set resources.memory.limit of Queue team to 8590",
    ),
    Situation(
        name="level-missing",
        stage=Stage.TOPOLOGY,
        nodes=[*labelled(RACK, "r1"), *FOUR_FREE],
        waits=[
            marked(
                gpus("waiting", 6), annotations={"kai.scheduler/topology-required-placement": RACK}
            )
        ],
        pods=6,
        says=f"requirement {RACK} couldn't be satisfied",
        suggests=f"only prefer one {RACK}, not require it",
    ),
    Situation(
        name="tainted-devices",
        stage=Stage.DEVICES,
        nodes=[replace(each, device_taints=[TAINT]) for each in gpu_nodes(1, published_gpus=4)],
        objects=[
            team(),
            claim_template(TEMPLATE, gpu_request(selectors=[{"cel": {"expression": FITTING}}])),
        ],
        waits=[job("waiting", 2, pod_spec(template=TEMPLATE), annotations=in_queue("team"))],
        pods=2,
        says="taint",
        suggests="tolerate the device taint example.com/reserved:NoSchedule "
        f"in ResourceClaimTemplate {TEMPLATE}",
    ),
    Situation(
        name="node-taint-before-selector",
        stage=Stage.NODE_FILTERS,
        nodes=[
            replace(each, taints=[{"key": "example.com/own", "effect": "NoSchedule"}])
            for each in gpu_nodes(1, published_gpus=4)
        ],
        objects=[
            team(),
            claim_template(
                TEMPLATE,
                gpu_request(selectors=[{"cel": {"expression": f"{FITTING} && {STRANGE}"}}]),
            ),
        ],
        waits=[job("waiting", 2, pod_spec(template=TEMPLATE), annotations=in_queue("team"))],
        pods=2,
        says="2 pods must start together but only 0 can be scheduled: 1 had untolerated taint",
        suggests="tolerate the taint example.com/own:NoSchedule, "
        f"and remove {STRANGE} from ResourceClaimTemplate {TEMPLATE}",
    ),
    Situation(
        name="volume-of-a-full-zone",
        stage=Stage.RESOURCES,
        nodes=labelled(ZONE, "a", "b"),
        objects=[team(), *volume_in("a")],
        before=[(gpus("theirs", 4, nodeSelector={ZONE: "a"}), 4)],
        waits=[gpus("waiting", 2, **DATA)],
        pods=2,
        says="2 pods must start together but only 0 can be scheduled: 1 didn't match the "
        "volume's node affinity, 1 Insufficient nvidia.com/gpu",
        suggests="add 1 node like node-a-0",
    ),
    Situation(
        name="host-ports",
        stage=Stage.RESOURCES,
        nodes=nodes(2),
        waits=[gpus("waiting", 3, count=0, containers=[PORT])],
        pods=2,
        says="free ports",
        suggests="let it start with 2 of its 3 pods (min-available)",
    ),
    Situation(
        name="apart",
        stage=Stage.NODE_FILTERS,
        nodes=nodes(2),
        waits=[gpus("waiting", 3, affinity=APART)],
        pods=2,
        says="3 pods must start together but only 2 can be scheduled: 2 didn't match pod "
        "anti-affinity rules",
        suggests="let it start with 2 of its 3 pods (min-available)",
    ),
    Situation(
        name="disruption-budget",
        stage=Stage.EVICTION_LIMITS,
        objects=[team(deserved=4), team("other"), budget("careful", 8, {"job-name": "theirs"})],
        before=[(marked(gpus("theirs", 8, "other"), annotations={MIN_AVAILABLE_KEY: "2"}), 8)],
        waits=[gpus("waiting", 3)],
        pods=3,
        says="pods of queue other are protected by PodDisruptionBudget default/careful",
        suggests="let PodDisruptionBudget default/careful allow 3 disruptions at a time "
        "(minAvailable)",
    ),
    Situation(
        name="min-runtime",
        stage=Stage.VICTIMS_PROTECTED,
        objects=[team(deserved=4), team("other", reclaimMinRuntime="2h")],
        before=[(gpus("theirs", 8, "other"), 8)],
        waits=[gpus("waiting", 4)],
        pods=4,
        says="every gang of queue other is within its min runtime of 7200 s",
        suggests="set reclaimMinRuntime of Queue other to 0s",
    ),
    Situation(
        name="fair-share-of-cpu",
        stage=Stage.FAIR_SHARE,
        nodes=[FakeNode(name="node-0", allocatable={"cpu": "8", "memory": "64Gi"})],
        objects=[
            team(resources={"cpu": {"deserved": 2}}),
            team("other", resources={"cpu": {"deserved": 2}}),
        ],
        before=[
            (cores("own", 4), 4),
            (
                marked(
                    cores("theirs", 4), annotations={QUEUE_KEY: "other", MIN_AVAILABLE_KEY: "2"}
                ),
                4,
            ),
        ],
        waits=[cores("waiting", 2)],
        pods=2,
        says="queue team would have 6 CPU cores allocated, above its fair share of 4",
        suggests="set resources.cpu.deserved of Queue team to 6",
    ),
)
