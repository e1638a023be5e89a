"""What is written into the status of a pending pod, for every state that the pod may be in."""

from datetime import UTC, datetime
from itertools import product

import pytest

from kai_py.api.records.core import Pod
from kai_py.api.records.record import convert_record
from kai_py.api.references import PodRef
from kai_py.commit.statuses.pod import (
    PendingPodStatus,
    differs,
    differs_in_message_only,
    is_unwritten,
    pod_status_patch,
)
from tests.support.records import replace

NOW = datetime(2027, 1, 1, tzinfo=UTC)
GATED = ("False", "SchedulingGated", "gated")
OURS = ("False", "Unschedulable", "no capacity")
CONDITIONS = (None, GATED, OURS, ("False", "Unschedulable", "other"), ("True", "", ""))


def pod_with(condition, nominated, *, gates):
    fields = dict(zip(("status", "reason", "message"), condition or (), strict=False))
    conditions = [{"type": "Ready", "status": "False"}]
    conditions += [{"type": "PodScheduled", **fields}] if condition else []
    return convert_record(
        {
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"schedulingGates": [{"name": "g"}] if gates else []},
            "status": {"conditions": conditions, "nominatedNodeName": nominated},
        },
        Pod,
    )


@pytest.mark.parametrize("incomplete", [False, True])
@pytest.mark.parametrize("reason", ["", "Unschedulable"])
@pytest.mark.parametrize("gates", [False, True])
def test_a_patch_leads_to_what_is_desired_and_writes_nothing_else(incomplete, reason, gates):
    for condition, before, wanted in product(CONDITIONS, ("", "n"), ("", "n", "m")):
        pod = pod_with(condition, before, gates=gates)
        ref = PodRef("ns", "p", "u")
        desired = PendingPodStatus(ref, reason, "no capacity", wanted, incomplete=incomplete)
        kept = incomplete and (condition in (None, GATED) or condition[0] == "True")
        says = bool(reason) and not gates and not kept
        patch = pod_status_patch(desired, pod, NOW)
        assert patch["metadata"] == {"uid": "u"}
        status = patch["status"]
        assert ("nominatedNodeName" in status) == (before != wanted)
        assert status.get("nominatedNodeName", wanted or None) == (wanted or None)
        assert ("conditions" in status) is says
        if says:
            [written] = status["conditions"]
            assert (written["type"], written["status"]) == ("PodScheduled", "False")
            assert (written["reason"], written["message"]) == (reason, "no capacity")
            is_new = condition is None or condition[0] != "False"
            assert ("lastTransitionTime" in written) is is_new
        assert differs(desired, pod) == (before != wanted or (says and condition != OURS))
        assert is_unwritten(desired, pod) == (incomplete and bool(reason) and not gates)


@pytest.mark.parametrize(
    ("change", "only"),
    [
        ({}, True),
        ({"message": "other"}, True),
        ({"reason": "Other"}, False),
        ({"nominated_node": "m"}, False),
        ({"lacks_devices": True}, False),
        ({"incomplete": True}, False),
    ],
)
def test_another_message_alone_has_to_wait(change, only):
    earlier = PendingPodStatus(PodRef("ns", "p", "u"), "Unschedulable", "no capacity", "n")
    assert differs_in_message_only(replace(earlier, **change), earlier) is only
