"""Protected pods that are resized in place: what they gain by it is not protected."""

import json

import pytest

from kai_py.grouping.admitted import ADMITTED_KEY
from tests.support.admitted_work import GROUP, MIN, QUEUES, bind, pod
from tests.support.poison.document import document
from tests.support.poison.process import Process

PREEMPTIBILITY = "scheduling.kai.io/preemptibility"


def cpu_pod(name, queue, cores, kind="", **spec):
    made = pod(name, queue, annotations={PREEMPTIBILITY: kind} if kind else {}, **spec)
    resize(made, cores)
    return made


def resize(made, cores):
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": str(cores)}}


def world(deserved=8):
    amounts = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    shares = {"mine": deserved, "owner": 32 - deserved}
    return [
        document("v1", "Node", "n0", status={"allocatable": amounts, "conditions": ready}),
        *(
            document(QUEUES, "Queue", name, spec={"resources": {"cpu": {"deserved": cores}}})
            for name, cores in shares.items()
        ),
    ]


def evicted(process):
    process.put(cpu_pod("due", "owner", 20))
    return {each.pod.name for each in process.cycle().evictions}


@pytest.mark.parametrize("kind", ["non-preemptible", "semi-preemptible"])
@pytest.mark.parametrize("restart", [False, True])
def test_what_a_protected_pod_gains_by_a_resize_can_be_reclaimed(kind, restart):
    process = Process()
    process.put(*world())
    [running] = bind(process, [cpu_pod("a", "mine", 4, kind)])
    resize(running, 24)
    if restart:
        process = Process()
        process.put(*world())
    process.put(running)
    assert evicted(process) == {"a"}


@pytest.mark.parametrize("cores", [4, 8])
def test_a_pod_that_grows_within_what_its_queue_deserves_stays_protected(cores):
    process = Process()
    process.put(*world())
    running = bind(process, [cpu_pod("a", "mine", 4, "non-preemptible"), cpu_pod("b", "mine", 16)])
    resize(running[0], cores)
    process.put(*running)
    assert evicted(process) == {"b"}


def test_others_of_the_queue_stay_protected():
    process = Process()
    process.put(*world())
    kind = "non-preemptible"
    running = bind(process, [cpu_pod(name, "mine", 4, kind) for name in ("a", "b")])
    resize(running[1], 20)
    process.put(*running)
    assert evicted(process) == {"b"}


def test_a_gang_of_which_one_pod_has_grown_is_exposed():
    process = Process()
    process.put(*world())
    marks = {GROUP: "gang", MIN: "2", PREEMPTIBILITY: "non-preemptible"}
    pods = [pod(name, "mine", annotations=marks) for name in ("a", "b")]
    for made in pods:
        resize(made, 4)
    running = bind(process, pods)
    resize(running[1], 20)
    process.put(*running)
    assert evicted(process) == {"a", "b"}


def test_a_queue_that_deserves_less_by_now_exposes_no_pod_that_has_not_grown():
    process = Process()
    process.put(*world())
    bind(process, [cpu_pod("a", "mine", 8, "non-preemptible"), cpu_pod("b", "mine", 8)])
    process.put(*world(deserved=2))
    process.put(cpu_pod("due", "owner", 28))
    assert not process.cycle().evictions


def test_the_requests_of_protected_pods_only_are_recorded():
    process = Process()
    process.put(*world())
    free, fixed = bind(
        process, [cpu_pod("a", "mine", 4), cpu_pod("b", "mine", 4, "non-preemptible")]
    )
    key = "scheduling.kai.io/admitted"
    assert "requests" not in free["metadata"]["annotations"][key]
    assert '"requests":{"cpu":4000.0}' in fixed["metadata"]["annotations"][key]


@pytest.mark.parametrize("record", ["of earlier versions", "none"])
def test_without_the_requests_in_its_record_what_was_first_seen_is_protected(record):
    process = Process()
    process.put(*world())
    [running] = bind(process, [cpu_pod("a", "mine", 6, "non-preemptible")])
    notes = running["metadata"]["annotations"]
    admitted = json.loads(notes.pop(ADMITTED_KEY))
    assert admitted.pop("requests")
    if record != "none":
        notes[ADMITTED_KEY] = json.dumps(admitted)
    process = Process()
    process.put(*world(), running)
    assert evicted(process) == set()
    resize(running, 24)
    process.put(running)
    assert evicted(process) == {"a"}
