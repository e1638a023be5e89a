"""What else runs on a real cluster: system pods with rules, volumes, budgets and many shapes.

On every node six DaemonSet pods, one of them with a host port. Of all system pods one in a hundred
is in a Deployment of five with required anti-affinity, as many are in operators with preferred
anti-affinity (CoreDNS is one), in web servers with spread constraints of both kinds and a
PodDisruptionBudget, and in databases with an attached volume each. Three control-plane nodes have a
taint. Requests come in a thousand sizes. All of it belongs to another scheduler and takes so little
of the nodes that the plan is that of the cluster without it.
"""

from collections.abc import Iterator, Sequence
from itertools import count

from msgspec import Struct

from benchmarks.core.objects import EPOCH, READY
from kai_py.api.records.core import (
    Affinity,
    Container,
    ContainerPort,
    LabelSelector,
    ObjectMeta,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from kai_py.api.records.node import Node, NodeSpec, NodeStatus, Taint
from kai_py.api.records.policy import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from kai_py.api.records.storage import (
    CSINode,
    CSINodeDriver,
    CSINodeSpec,
    CSIPersistentVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
    VolumeNodeResources,
)
from kai_py.api.records.volume import ClaimVolumeSource, Volume

DAEMONS, REPLICAS, SIZES = 6, 5, 1_000
"""DaemonSets, pods of a Deployment, distinct requests."""

NAMESPACE, HOST, DRIVER = "system", "kubernetes.io/hostname", "disk.example.com"
EXPORTER_PORTS = (ContainerPort(host_port=9100),)
RUNNING = PodStatus(phase="Running")


def population(node_names: Sequence[str]) -> Iterator[Struct]:
    """The objects for a cluster of these nodes."""
    numbers = count()
    yield from _control_plane()
    for name in node_names:
        yield _pod("node-exporter", next(numbers), name, ports=EXPORTER_PORTS)
        for daemon in range(1, DAEMONS):
            yield _pod(f"daemon-{daemon}", next(numbers), name)
    # One pod in a hundred, in Deployments: 1 % of the pods of DaemonSets.
    deployments = max(1, DAEMONS * len(node_names) // 100 // REPLICAS)
    for at in range(deployments):
        hosts = [node_names[(at * 7 + i * 13) % len(node_names)] for i in range(REPLICAS)]
        for i, host in enumerate(hosts):
            apart, operator = f"apart-{at}", f"operator-{at}" if at else "kube-dns"
            yield _pod(apart, next(numbers), host, affinity=_apart(apart))
            yield _pod(operator, next(numbers), host, affinity=_rather_apart(operator))
            yield _pod(f"web-{at}", next(numbers), host, spread=_spread(f"web-{at}"))
            yield from _database(f"database-{at}-{i}", next(numbers), host)
        yield _budget(f"web-{at}")
    for name in node_names:
        driver = CSINodeDriver(name=DRIVER, allocatable=VolumeNodeResources(count=24))
        yield CSINode(metadata=ObjectMeta(name=name), spec=CSINodeSpec(drivers=(driver,)))


def _control_plane() -> Iterator[Node]:
    for i in range(3):
        name = f"control-plane-{i}"
        allocatable = {k: v for k, v in READY.allocatable.items() if k != "nvidia.com/gpu"}
        yield Node(
            metadata=ObjectMeta(name=name, uid=name, labels={HOST: name}),
            spec=NodeSpec(
                taints=(Taint(key="node-role.kubernetes.io/control-plane", effect="NoSchedule"),)
            ),
            status=NodeStatus(allocatable=allocatable, conditions=READY.conditions),
        )


def _pod(
    app: str,
    number: int,
    node: str,
    *,
    affinity: Affinity | None = None,
    spread: tuple[TopologySpreadConstraint, ...] = (),
    volumes: tuple[Volume, ...] = (),
    ports: tuple[ContainerPort, ...] = (),
) -> Pod:
    name = f"{app}-{number}"
    requests: dict[str, str | int | float] = {"cpu": f"{1 + number % SIZES}m", "memory": "10M"}
    main = Container(name="main", resources=ResourceRequirements(requests=requests), ports=ports)
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=NAMESPACE,
            uid=f"system-{name}",
            creation_timestamp=EPOCH,
            labels={"app": app, "pod-template-hash": app},
        ),
        spec=PodSpec(
            scheduler_name="default-scheduler",
            node_name=node,
            affinity=affinity,
            topology_spread_constraints=spread,
            containers=(main,),
            volumes=volumes,
        ),
        status=RUNNING,
    )


def _own(app: str) -> LabelSelector:
    return LabelSelector(match_labels={"app": app})


def _term(app: str) -> PodAffinityTerm:
    return PodAffinityTerm(label_selector=_own(app), topology_key=HOST)


def _apart(app: str) -> Affinity:
    return Affinity(pod_anti_affinity=PodAffinity(required=(_term(app),)))


def _rather_apart(app: str) -> Affinity:
    preferred = WeightedPodAffinityTerm(weight=100, pod_affinity_term=_term(app))
    return Affinity(pod_anti_affinity=PodAffinity(preferred=(preferred,)))


def _spread(app: str) -> tuple[TopologySpreadConstraint, ...]:
    return tuple(
        TopologySpreadConstraint(
            topology_key=HOST, label_selector=_own(app), when_unsatisfiable=when, max_skew=5
        )
        for when in ("DoNotSchedule", "ScheduleAnyway")
    )


def _database(name: str, number: int, node: str) -> Iterator[Struct]:
    meta = ObjectMeta(name=name, namespace=NAMESPACE, uid=f"claim-{name}")
    yield PersistentVolume(
        metadata=ObjectMeta(name=f"volume-{name}", uid=f"volume-{name}"),
        spec=PersistentVolumeSpec(
            csi=CSIPersistentVolumeSource(driver=DRIVER, volume_handle=name),
            capacity={"storage": "1Gi"},
        ),
    )
    yield PersistentVolumeClaim(
        metadata=meta, spec=PersistentVolumeClaimSpec(volume_name=f"volume-{name}")
    )
    source = VolumeAttachmentSource(persistent_volume_name=f"volume-{name}")
    yield VolumeAttachment(
        metadata=ObjectMeta(name=name, uid=f"attachment-{name}"),
        spec=VolumeAttachmentSpec(attacher=DRIVER, node_name=node, source=source),
    )
    data = Volume(name="data", persistent_volume_claim=ClaimVolumeSource(claim_name=name))
    yield _pod(name, number, node, volumes=(data,))


def _budget(app: str) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=app, namespace=NAMESPACE, uid=f"budget-{app}"),
        spec=PodDisruptionBudgetSpec(selector=_own(app)),
        status=PodDisruptionBudgetStatus(disruptions_allowed=1),
    )
