"""What tenants edit on running work, and on all that it refers to, gains them nothing.

A tenant runs a gang of two in each way to form one, most of it above its queue's share. Then it
edits what an API server lets it edit. The scheduler that saw the edits, and one that starts after
them, charge its queue as before and take all of the capacity back once its owner wants it.
"""

import copy
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kai_py.api.queue import ADMISSION_GATE
from kai_py.grouping.admitted import read_terms
from tests.support.admitted_work import (
    EDITS,
    GPUS,
    GROUP,
    OWNER,
    TASKS,
    TENANT,
    WAYS,
    admitted_work,
    marks,
    owned_by,
    pod,
    world,
    write,
)
from tests.support.cluster.api import Document
from tests.support.examples import examples
from tests.support.poison.process import Process


@pytest.fixture(scope="module")
def admitted() -> list[Document]:
    return admitted_work()


@st.composite
def edit(draw: Callable) -> tuple[str, str, str, object]:
    """What is edited: the kind, the prefix of the names, the field, and its value."""
    kind = draw(st.sampled_from(sorted(EDITS)))
    path = draw(st.sampled_from(sorted(EDITS[kind])))
    value = draw(st.sampled_from(EDITS[kind][path]))
    return kind, draw(st.sampled_from(("", *WAYS, "ours-0"))), path, value


def priorities(documents: list[Document]) -> dict[str, int]:
    """By pod, the priority with which it was admitted."""
    named = {
        each["metadata"]["name"]: each["metadata"]["annotations"]
        for each in documents
        if each["kind"] == "Pod"
    }
    return {name: read_terms(notes).priority for name, notes in named.items()}


def gains_nothing(process: Process, admitted: list[Document], deserved: int) -> None:
    """The queue is charged as before, and its owner can have all that is his."""
    process.cycle()
    snapshot = process.planner.freeze(process.now)
    assert snapshot.queue_allocated[TENANT]["gpu"] == GPUS
    assert not snapshot.queue_allocated.get(OWNER, {}).get("gpu")
    assert not snapshot.queue_non_preemptible.get(TENANT, {}).get("gpu")
    known = priorities(admitted)
    for gang in snapshot.gangs.values():
        assert gang.priority <= min(known[each.pod.name] for each in gang.bound)
    due = [pod(f"due-{n}", OWNER) for n in range(GPUS - deserved)]
    late = [pod(f"late-{n}", TENANT) for n in range(2)]
    process.put(*due, *late)
    plan = process.cycle()
    assert not plan.placements
    assert not [told for told in plan.set_aside if told.error], plan.set_aside
    given = {each.pod.name for each in plan.nominations}
    assert given == {each["metadata"]["name"] for each in due}, plan.unplaced
    assert len({each.pod.name for each in plan.evictions}) == GPUS - deserved


JOB_OF_2_TO_THE_31 = [
    ("Job", "", "spec.backoffLimit", 0),
    ("Job", "", "spec.completions", None),
    ("Job", "", "spec.parallelism", 2**31 - 1),
]
OWNED_BY_A_JOB = [
    ("Job", "", "spec.backoffLimit", 0),
    ("Pod", "", "metadata.ownerReferences", owned_by("batch/v1", "Job", "job")["ownerReferences"]),
]
IN_A_LARGE_GROUP = [
    *(
        ("Pod", "", f"metadata.annotations|{key}", value)
        for key, value in {
            "yunikorn.apache.org/task-group-name": "b",
            "applicationId": "app",
            TASKS: f'[{{"name": "b", "minMember": {GPUS}}}]',
            "kai.scheduler/ignore-workload-api": "true",
            **dict.fromkeys((GROUP, "pod-group-name", "scheduling.k8s.io/group-name")),
        }.items()
    ),
    ("Pod", "", "metadata.labels", {}),
]


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(
    edits=st.lists(edit(), min_size=1, max_size=4),
    deleted=st.sampled_from(("", *WAYS)),
    deserved=st.sampled_from((0, 2)),
)
@example(JOB_OF_2_TO_THE_31, "", 0)
@example(OWNED_BY_A_JOB, "", 0)
@example(IN_A_LARGE_GROUP, "", 2)
def test_no_edit_gains_capacity_priority_or_protection(admitted, edits, deleted, deserved):
    seen = Process()
    seen.put(*world(deserved), *copy.deepcopy(admitted))
    seen.cycle()
    after = copy.deepcopy(admitted)
    for kind, prefix, path, value in edits:
        for each in after:
            if each["kind"] == kind and each["metadata"]["name"].startswith(prefix):
                write(each, path, value)
    gone = [each for each in after if each["kind"] != "Pod" and each["metadata"]["name"] == deleted]
    seen.put(*after)
    seen.remove(*gone)
    gains_nothing(seen, admitted, deserved)
    restarted = Process()
    restarted.put(*world(deserved), *(each for each in after if each not in gone))
    gains_nothing(restarted, admitted, deserved)


@pytest.mark.parametrize("gate", [ADMISSION_GATE, "grove.io/podgang-pending-creation", "any/gate"])
@pytest.mark.parametrize("restart", [False, True])
def test_removing_a_scheduling_gate_gains_nothing(admitted, gate, restart):
    """A tenant that removes a gate by itself is let in no further than its queue goes."""
    gates = [{"name": gate}]
    late = [
        pod(f"late-{n}", TENANT, schedulingGates=gates, **marks(way))
        for n, way in enumerate(WAYS)
        if way not in ("job", "queued")
    ]
    process = Process()
    process.put(*world(2), *copy.deepcopy(admitted), *late)
    plan = process.cycle()
    assert not plan.placements
    assert not plan.admissions
    for each in late:
        del each["spec"]["schedulingGates"]
    if restart:
        process = Process()
        process.put(*world(2), *copy.deepcopy(admitted))
    process.put(*late)
    plan = process.cycle()
    assert not plan.placements
    assert {each.queue for each in plan.evictions} <= {TENANT}, "what is more urgent may replace"
    assert len(plan.nominations) <= len(plan.evictions)
    assert process.planner.freeze(process.now).queue_allocated[TENANT]["gpu"] == GPUS
