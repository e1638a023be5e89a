"""What controllers of a saved cluster would do, where nothing runs: each condition alone."""

import pytest

from kai_py.api.gpu_share import GPU_FRACTION, GPU_GROUP, RESERVATION
from kai_py.api.records.core import Pod
from kai_py.api.records.record import convert_record
from kai_py.simulate.files.controllers import spent_budget, unused_reservations
from tests.support.records import replace

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
UNREADY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
SPARE = {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 3}


@pytest.mark.parametrize(
    ("status", "spec", "pod_status", "meta", "is_spent"),
    [
        (SPARE, {}, READY, {}, True),
        (SPARE, {}, {"phase": "Running"}, {}, True),
        ({"disruptionsAllowed": 0}, {}, READY, {}, False),
        ({}, {}, READY, {}, False),
        (None, {}, READY, {}, False),
        (SPARE, {"selector": {"matchLabels": {"a": "other"}}}, READY, {}, False),
        (SPARE, {"selector": {"matchExpressions": [{"operator": "No"}]}}, READY, {}, False),
        (SPARE, {}, {"phase": "Pending"}, {}, False),
        (SPARE, {}, {"phase": "Succeeded"}, {}, False),
        (SPARE, {}, READY, {"deletionTimestamp": "2027-01-01T00:00:00Z"}, False),
        (SPARE, {}, UNREADY, {}, False),
        ({**SPARE, "currentHealthy": 2}, {}, UNREADY, {}, True),
        (
            {**SPARE, "currentHealthy": 2},
            {"unhealthyPodEvictionPolicy": "AlwaysAllow"},
            UNREADY,
            {},
            False,
        ),
    ],
)
def test_an_eviction_spends_a_budget_that_counts_it(status, spec, pod_status, meta, is_spent):
    selector = {"matchLabels": {"a": "b"}}
    budget = {"metadata": {"name": "b"}, "spec": {"selector": selector, **spec}, "status": status}
    pod = {"metadata": {"name": "p", "labels": {"a": "b"}, **meta}, "status": pod_status}
    found = spent_budget(budget, pod)
    assert (found is not None) is is_spent
    if found is not None:
        assert found == {**budget, "status": {**status, "disruptionsAllowed": 0}}


def sharing(group="g", node="n", phase="Running", *, reserves=False):
    meta = {
        "name": f"{group}-{node}",
        "namespace": RESERVATION if reserves else "team",
        "labels": {GPU_GROUP: group, "app": RESERVATION},
        "annotations": {} if reserves else {GPU_FRACTION: "0.5"},
    }
    whole = {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}}
    return convert_record(whole, Pod)


@pytest.mark.parametrize(
    ("others", "is_unused"),
    [
        ([], True),
        ([sharing()], False),
        ([sharing(phase="Pending")], False),
        ([sharing(phase="Succeeded")], True),
        ([sharing(phase="Failed")], True),
        ([sharing("other")], True),
        ([sharing(node="elsewhere")], True),
        ([sharing(phase="Failed"), sharing()], False),
    ],
)
def test_a_gpu_stays_reserved_while_a_pod_that_shares_it_has_not_ended(others, is_unused):
    reservation = sharing(reserves=True)
    assert unused_reservations([*others, reservation]) == ([reservation] if is_unused else [])
    unbound = replace(reservation, spec=replace(reservation.spec, node_name=""))
    assert unused_reservations([*others, unbound]) == []
