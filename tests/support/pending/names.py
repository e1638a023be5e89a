"""Gangs that wait for a name that does not exist: a letter too many, another domain, no queue."""

from kai_py.observe.explanation import NO_PODS, OTHER_SCHEDULER
from kai_py.plan.plan import Stage
from tests.cluster.fake_kubelet.nodes import GPU_DRIVER, H100, FakeNode, gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.manifests import (
    TEMPLATE,
    claim,
    claim_template,
    gpu_request,
    job,
    pod_spec,
    priority_class,
)
from tests.support.situations import (
    POOL,
    RACK,
    Situation,
    gpus,
    in_queue,
    labelled,
    marked,
    nodes,
    team,
)

ATTRIBUTE = f'device.attributes["{GPU_DRIVER}"]'
CAPACITY = f'device.capacity["{GPU_DRIVER}"]'
SPOT = FakeNode(
    name="spot-0",
    allocatable={"nvidia.com/gpu": "8"},
    labels={POOL: "spot"},
    taints=[{"key": "example.com/spot", "value": "true", "effect": "NoSchedule"}],
)
DATA = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


def storage_class(name: str) -> Document:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "disks.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def service_account(name: str) -> Document:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}


def volume_claim(name: str, storage: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": "default",
            "finalizers": ["kubernetes.io/pvc-protection"],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def claiming(
    expression: str = "", *, template: str = TEMPLATE, size: int = 1, **exactly: object
) -> list[Document]:
    """A Job and its claim template, which selects devices."""
    selectors = [{"cel": {"expression": expression}}] if expression else []
    request = gpu_request(**exactly, **({"selectors": selectors} if selectors else {}))
    waiting = job("waiting", size, pod_spec(template=template), annotations=in_queue("team"))
    return [claim_template(TEMPLATE, request), waiting]


def selector(name: str, expression: str, says: str, suggests: str) -> Situation:
    return Situation(
        name=name,
        stage=Stage.DEVICES,
        nodes=gpu_nodes(1, published_gpus=4),
        waits=claiming(expression),
        pods=1,
        says=says,
        suggests=f"{suggests} in ResourceClaimTemplate {TEMPLATE}",
    )


def node_name(name: str, says: str, suggests: str, **spec: object) -> Situation:
    return Situation(
        name=name,
        stage=Stage.NODE_FILTERS,
        nodes=labelled(POOL, "h100"),
        waits=[gpus("waiting", 1, **spec)],
        pods=1,
        says=says,
        suggests=suggests,
    )


def expressions(key: str, *values: str) -> Document:
    required = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [required]}}
    return {"nodeAffinity": rule}


NAMES = (
    Situation(
        name="queue-misspelt",
        stage=Stage.QUEUE_NOT_FOUND,
        objects=[team("team-a"), team("other")],
        waits=[gpus("waiting", 1, "team-aa")],
        pods=1,
        says='queue "team-aa" does not exist',
        suggests="use queue team-a instead of team-aa",
    ),
    Situation(
        name="queue-missing",
        stage=Stage.QUEUE_NOT_FOUND,
        objects=[team("team-a"), team("team-b")],
        waits=[job("waiting", 1, pod_spec(gpus=1), annotations={})],
        pods=1,
        says="Queues for namespace default: team-a, team-b.",
        suggests="use queue team-a",
    ),
    Situation(
        name="queue-closed",
        stage=Stage.INVALID,
        objects=[team("open"), team("theirs", namespaces={"names": ["elsewhere"]})],
        waits=[gpus("waiting", 1, "theirs")],
        pods=1,
        says="Queues for namespace default: open.",
        suggests="use queue open instead of theirs",
    ),
    Situation(
        name="scheduler-misspelt",
        stage=OTHER_SCHEDULER,
        waits=[
            job(
                "waiting",
                2,
                pod_spec(gpus=1, scheduler="kai-schedular"),
                annotations=in_queue("team"),
            )
        ],
        pods=2,
        says='no pod with spec.schedulerName "kai-schedular" was ever placed; '
        "did you mean kai-scheduler?",
        suggests="correct schedulerName kai-schedular to kai-scheduler",
    ),
    Situation(
        name="priority-class-misspelt",
        stage=NO_PODS,
        objects=[team(), priority_class("urgent", 100)],
        waits=[gpus("waiting", 2, priorityClassName="urgnet")],
        pods=2,
        says='it has no pods: PriorityClass "urgnet" does not exist; did you mean urgent?',
        suggests="correct PriorityClass urgnet to urgent",
    ),
    node_name(
        "label-value-misspelt",
        f"No node has label {POOL}=h1000; did you mean h100?",
        f"correct node label {POOL}=h1000 to h100",
        nodeSelector={POOL: "h1000"},
    ),
    node_name(
        "label-misspelt",
        f"No node has label example.com/pol; did you mean {POOL}?",
        f"correct node label example.com/pol to {POOL}",
        nodeSelector={"example.com/pol": "h100"},
    ),
    node_name(
        "affinity-misspelt",
        f"No node has label {POOL}=h10; did you mean h100?",
        f"correct node label {POOL}=h10 to h100",
        affinity=expressions(POOL, "h10"),
    ),
    Situation(
        name="resource-misspelt",
        stage=Stage.RESOURCES,
        waits=[
            gpus(
                "waiting",
                1,
                containers=[
                    {
                        "name": "main",
                        "image": "none",
                        "resources": {"limits": {"nvidia.com/gpus": "1"}},
                    }
                ],
            )
        ],
        pods=1,
        says="No node reports resource nvidia.com/gpus; did you mean nvidia.com/gpu?",
        suggests="correct resource nvidia.com/gpus to nvidia.com/gpu",
    ),
    Situation(
        name="level-misspelt",
        stage=Stage.TOPOLOGY,
        nodes=labelled(RACK, "r1", "r2"),
        waits=[
            marked(
                gpus("waiting", 2),
                annotations={"kai.scheduler/topology-required-placement": "example.com/rak"},
            )
        ],
        pods=2,
        says=f"No node has label example.com/rak; did you mean {RACK}?",
        suggests=f"correct topology level example.com/rak to {RACK}",
    ),
    Situation(
        name="device-class-misspelt",
        stage=Stage.DEVICES,
        nodes=gpu_nodes(1, published_gpus=4),
        waits=claiming(deviceClassName="gpu.nvidia.comm"),
        pods=1,
        says=f"Did you mean DeviceClass {GPU_DRIVER}?",
        suggests=f"correct DeviceClass gpu.nvidia.comm to {GPU_DRIVER} in "
        f"ResourceClaimTemplate {TEMPLATE}",
    ),
    Situation(
        name="template-misspelt",
        stage=Stage.CLAIMS_NOT_READY,
        nodes=gpu_nodes(1, published_gpus=4),
        waits=claiming(template="one-gpus"),
        pods=1,
        says=f"Did you mean ResourceClaimTemplate {TEMPLATE}?",
        suggests=f"correct ResourceClaimTemplate one-gpus to {TEMPLATE}",
    ),
    Situation(
        name="claim-misspelt",
        stage=Stage.CLAIMS_NOT_READY,
        nodes=gpu_nodes(1, published_gpus=4),
        objects=[team(), claim("shared")],
        waits=[job("waiting", 1, pod_spec(claim="sharde"), annotations=in_queue("team"))],
        pods=1,
        says='resourceclaim "sharde" not found in namespace "default". '
        "Did you mean ResourceClaim shared?",
        suggests="correct ResourceClaim sharde to shared",
    ),
    Situation(
        name="volume-claim-misspelt",
        stage=Stage.CLAIMS_NOT_READY,
        objects=[team(), storage_class("fast"), volume_claim("dataset", "fast")],
        waits=[
            gpus(
                "waiting",
                1,
                volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "datasets"}}],
            )
        ],
        pods=1,
        says="Did you mean PersistentVolumeClaim dataset?",
        suggests="correct PersistentVolumeClaim datasets to dataset",
    ),
    Situation(
        name="volume-claim-missing",
        stage=Stage.CLAIMS_NOT_READY,
        objects=[team(), storage_class("fast")],
        waits=[gpus("waiting", 1, volumes=[DATA])],
        pods=1,
        says='persistentvolumeclaim "data" not found.',
        suggests="create PersistentVolumeClaim data of StorageClass fast, as large as its data "
        "(1Gi here)",
    ),
    Situation(
        name="storage-class-misspelt",
        stage=Stage.CLAIMS_NOT_READY,
        objects=[team(), storage_class("fast"), volume_claim("data", "fasst")],
        waits=[gpus("waiting", 1, volumes=[DATA])],
        pods=1,
        says='storage class "fasst" does not exist. Did you mean StorageClass fast?',
        suggests="correct StorageClass fasst to fast in PersistentVolumeClaim data",
    ),
    selector(
        "attribute-misspelt",
        f'{ATTRIBUTE}.productNam == "{H100}"',
        f"No device publishes attribute {GPU_DRIVER}/productNam; "
        f"did you mean attribute {GPU_DRIVER}/productName?",
        f"correct attribute {GPU_DRIVER}/productNam to attribute {GPU_DRIVER}/productName",
    ),
    selector(
        "domain-misspelt",
        'device.attributes["gpu.nvidia.comm"].architecture == "Hopper"',
        f"did you mean attribute {GPU_DRIVER}/architecture?",
        f"correct attribute gpu.nvidia.comm/architecture to attribute {GPU_DRIVER}/architecture",
    ),
    selector(
        "attribute-value-misspelt",
        f'{ATTRIBUTE}.architecture == "Hoper"',
        f'No device has attribute {GPU_DRIVER}/architecture "Hoper"; did you mean "Hopper"?',
        f'correct attribute {GPU_DRIVER}/architecture "Hoper" to "Hopper"',
    ),
    selector(
        "capacity-misspelt",
        f'{CAPACITY}.memry.compareTo(quantity("40Gi")) >= 0',
        f"did you mean capacity {GPU_DRIVER}/memory?",
        f"correct capacity {GPU_DRIVER}/memry to capacity {GPU_DRIVER}/memory",
    ),
    selector(
        "capacity-as-attribute",
        f'{ATTRIBUTE}.memory == "80Gi" || {ATTRIBUTE}.memory.compareTo(quantity("40Gi")) >= 0',
        f"No device publishes attribute {GPU_DRIVER}/memory; "
        f"did you mean capacity {GPU_DRIVER}/memory?",
        f"correct attribute {GPU_DRIVER}/memory to capacity {GPU_DRIVER}/memory",
    ),
    selector(
        "driver-misspelt",
        'device.driver == "gpu.nvidia.co"',
        f'No device has driver "gpu.nvidia.co"; did you mean "{GPU_DRIVER}"?',
        f'correct driver "gpu.nvidia.co" to "{GPU_DRIVER}"',
    ),
    Situation(
        name="taint",
        stage=Stage.NODE_FILTERS,
        nodes=[SPOT, *nodes()],
        waits=[gpus("waiting", 1, nodeSelector={POOL: "spot"})],
        pods=1,
        says="A toleration of taint example.com/spot=true:NoSchedule would admit 1 node.",
        suggests="tolerate the taint example.com/spot=true:NoSchedule",
    ),
)

ACCOUNTS = (
    Situation(
        name="service-account-misspelt",
        stage=NO_PODS,
        objects=[team(), service_account("trainer")],
        waits=[gpus("waiting", 2, serviceAccountName="traner")],
        pods=2,
        says='it has no pods: ServiceAccount "traner" does not exist; did you mean trainer?',
        suggests="correct ServiceAccount traner to trainer",
    ),
    Situation(
        name="service-account-missing",
        stage=NO_PODS,
        objects=[team(), service_account("default-trainer")],
        waits=[gpus("waiting", 2, serviceAccountName="nightly")],
        pods=2,
        says='it has no pods: ServiceAccount "nightly" does not exist; create it, or name another',
        suggests="create ServiceAccount nightly",
    ),
)
"""Of the real API server: that in a simulation creates pods of any account."""
