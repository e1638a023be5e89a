"""The conditions of a queue: each bound just reached and just exceeded, each cause by itself."""

import math

import pytest

from kai_py.api.queue import API_VERSION
from kai_py.commit.statuses.queue_conditions import OPEN, queue_conditions
from kai_py.plan.observations import QueueShare
from kai_py.snapshot.tables.queues import QueueFault, QueueProblem
from tests.support.records import replace

KAI = "scheduling.run.ai/v2"


def share(name="q", **fields):
    amounts = "deserved", "maximum", "fair_share", "allocated", "requested"
    return QueueShare(queue=name, pending_gangs=0, **({each: {} for each in amounts} | fields))


def conditions(made, *others):
    """By type, status, reason and message."""
    known = {each.queue: each for each in (made, *others)}
    return {
        each.type: (each.status, each.reason, each.message)
        for each in queue_conditions(made, known)
    }


@pytest.mark.parametrize("bound", [0.0, 2.0, 1e6])
@pytest.mark.parametrize(
    ("kind", "field", "reason"),
    [("OverDeserved", "deserved", "AboveDeserved"), ("OverMax", "maximum", "AboveMax")],
)
def test_more_than_a_rounding_error_above_a_bound_is_told(kind, field, reason, bound):
    for more, says in ((0.0, False), (0.9e-6, False), (3e-6 * (1 + bound), True)):
        found = conditions(share(allocated={"gpu": bound + more}, **{field: {"gpu": bound}}))
        assert found[kind][0] == str(says)
        assert (found[kind][1] == reason) is says
    unbounded = share(allocated={"gpu": 9.0}, **{field: {"gpu": math.inf}})
    assert conditions(unbounded)[kind][0] == "False"
    assert conditions(share(allocated={"gpu": 9.0}))[kind][0] == "False"


@pytest.mark.parametrize(
    ("deserved", "scaled", "others", "cause"),
    [
        (8.0, 3.0, [(4.0, 3.0)], "more than the 6 GPUs that all 2 sibling queues can be"),
        (6.0, 3.0, [(4.0, 3.0)], "the cluster is smaller than the sum"),
        (7.0, 3.0, [(4.0, None)], "the cluster is smaller than the sum"),
        (8.0, 3.0, [(4.0, None)], "more than the 7 GPUs that all 2 sibling queues can be"),
        (8.0, 3.0, [], "the cluster is smaller than the sum"),
    ],
)
def test_a_guarantee_above_all_that_siblings_share_is_at_fault(deserved, scaled, others, cause):
    """``others``: what siblings deserve, and what is left of it, if it was scaled as well."""
    made = share(deserved={"gpu": deserved}, scaled_deserved={"gpu": scaled})
    siblings = [
        share(
            f"s{n}",
            deserved={"gpu": each},
            scaled_deserved={} if left is None else {"gpu": left},
        )
        for n, (each, left) in enumerate(others)
    ]
    elsewhere = share("low", parent="s0", deserved={"gpu": 99.0})
    status, reason, message = conditions(made, *siblings, elsewhere)["Ready"]
    assert (status, reason) == ("True", "DeservedScaledDown")
    assert cause in message
    assert "3 GPUs" in message


@pytest.mark.parametrize(
    ("version", "resource", "is_bounded"),
    [
        (API_VERSION, "gpu", True),
        (API_VERSION, "deviceclass/mig", True),
        (KAI, "gpu", True),
        (KAI, "deviceclass/mig", False),
    ],
)
def test_only_resources_that_the_queue_can_name_exceed_its_bounds(version, resource, is_bounded):
    amounts = {
        "allocated": {resource: 9.0},
        "deserved": {resource: 1.0},
        "maximum": {resource: 1.0},
    }
    found = conditions(share(**amounts, api_version=version))
    for kind in ("OverDeserved", "OverMax"):
        assert found[kind][0] == str(is_bounded)


BROKEN = [QueueFault.MISSING_PARENT, QueueFault.CYCLE, QueueFault.TOO_DEEP]


@pytest.mark.parametrize("fault", list(QueueFault))
def test_a_faulty_queue_is_not_ready_and_an_orphan_if_its_parent_is_at_fault(fault):
    made = share(problems=(QueueProblem("q", fault, "it is wrong"),))
    found, below = conditions(made), conditions(share("low", parent="q"), made)
    is_orphan = fault in BROKEN
    assert found["Ready"][:2] == ("False", fault.value)
    assert found["Orphan"][:2] == (("True", fault.value) if is_orphan else ("False", "InTree"))
    for kind in ("Ready", "Orphan"):
        assert ("treated as a root" in found["Ready"][2]) is is_orphan
        assert (below[kind][1] == "AncestorOrphan") is is_orphan
        assert (below[kind][0] == "True") is (is_orphan is (kind == "Orphan"))


@pytest.mark.parametrize(
    ("is_open", "version", "text"),
    [(True, API_VERSION, OPEN), (False, API_VERSION, ""), (True, KAI, "")],
)
def test_a_queue_that_is_open_to_all_namespaces_says_so_where_that_can_be_changed(
    is_open, version, text
):
    made = replace(share(), is_open=is_open, api_version=version)
    assert conditions(made)["Ready"] == ("True", "Accepted", text)
