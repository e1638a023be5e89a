"""Which pods get our scheduler, the queue of their namespace, and the gate."""

import pytest

from kai_py.admission.handlers import (
    QueueReference,
    gets_gate,
    gets_gpu_environment,
    gets_scheduler,
    queue_reference,
)
from kai_py.api.gpu_reservation import gpu_environment
from kai_py.api.queue import ADMISSION_GATE, QUEUE_NAME_KEY
from kai_py.api.records.core import ObjectMeta, OwnerReference, Pod, PodSchedulingGate, PodSpec
from kai_py.grouping.owner_chain import OwnerChain
from kai_py.grouping.queue_choice import Defaults, QueueKey

KEYS = (QueueKey(QUEUE_NAME_KEY), QueueKey("kai.scheduler/queue", Defaults.KAI))


def pod(scheduler="default-scheduler", owner="", node="", gates=(), **labels):
    owners = (OwnerReference(kind=owner, uid="1", controller=True),) if owner else ()
    return Pod(
        metadata=ObjectMeta(labels=labels, owner_references=owners),
        spec=PodSpec(
            scheduler_name=scheduler,
            node_name=node or None,
            scheduling_gates=tuple(PodSchedulingGate(name=name) for name in gates),
        ),
    )


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (pod(), True),
        (pod(owner="ReplicaSet"), True),
        (pod(owner="DaemonSet"), False),
        (pod(owner="Node"), False),
        (pod(node="n1"), False),
        (pod(scheduler="another"), False),
    ],
)
def test_only_pods_that_name_no_scheduler_get_ours(asked, given):
    assert gets_scheduler(asked) is given


def test_the_queue_of_the_namespace_is_named_in_its_own_words():
    chain = OwnerChain(pod(), (ObjectMeta(),))
    for place in ("labels", "annotations"):
        for each in KEYS:
            namespace = ObjectMeta(**{place: {each.key: "team-a"}})
            assert queue_reference(chain, namespace, KEYS) == QueueReference(
                place, each.key, "team-a"
            )
    assert queue_reference(chain, ObjectMeta(), KEYS) is None


def test_whoever_names_a_queue_keeps_it():
    namespace = ObjectMeta(labels={QUEUE_NAME_KEY: "team-a"})
    job = ObjectMeta(annotations={"kai.scheduler/queue": "team-b"})
    assert queue_reference(OwnerChain(pod(), (ObjectMeta(), job)), namespace, KEYS) is None
    unread = OwnerReference(kind="Job", uid="1")
    assert (
        queue_reference(OwnerChain(pod(), (ObjectMeta(),), unknown=unread), namespace, KEYS) is None
    )


def test_the_gate_is_for_pods_of_ours_that_wait_and_once():
    ours = ("kai-scheduler",)
    assert gets_gate(pod("kai-scheduler"), ours)
    assert gets_gate(pod("kai-scheduler", gates=("example.com/other",)), ours)
    assert not gets_gate(pod("kai-scheduler", gates=(ADMISSION_GATE,)), ours)
    assert not gets_gate(pod("kai-scheduler", node="n1"), ours)
    assert not gets_gate(pod("another"), ours)


def share(scheduler="kai-scheduler", node="", **asked):
    keys = {key.replace("_", "-"): value for key, value in asked.items()}
    return Pod(
        metadata=ObjectMeta(annotations=keys),
        spec=PodSpec(scheduler_name=scheduler, node_name=node),
    )


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (share(gpu_fraction="0.5"), True),
        (share(gpu_memory="2000"), True),
        (share(), False),
        (share(gpu_fraction="2"), False),
        (share(gpu_fraction="0.5", scheduler="another"), False),
        (share(gpu_fraction="0.5", node="n1"), False),
    ],
)
def test_pods_that_share_a_gpu_get_an_environment(asked, given):
    assert gets_gpu_environment(asked, ("kai-scheduler",)) is given


def test_one_container_sees_the_gpu_and_the_others_none():
    mine = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    kept = {"name": "KEPT", "value": "1"}
    manifest = {
        "spec": {
            "initContainers": [{"name": "init"}],
            "containers": [
                {"name": "first", "env": [mine, kept], "resources": {"limits": {"cpu": "1"}}},
                {"name": "second"},
            ],
        }
    }
    changed = gpu_environment(manifest, "first")
    none = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    assert changed["initContainers"] == [{"name": "init", "env": [none]}]
    first, second = changed["containers"]
    assert second["env"] == [none]
    path = "metadata.annotations['scheduling.kai.io/visible-gpus']"
    visible = {"name": mine["name"], "valueFrom": {"fieldRef": {"fieldPath": path}}}
    assert first["env"] == [kept, visible]
    share = {"scheduling.kai.io/gpu-share": "1"}
    assert first["resources"] == {"limits": {"cpu": "1", **share}, "requests": share}
    assert "resources" not in second
