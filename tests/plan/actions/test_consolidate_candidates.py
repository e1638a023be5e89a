"""Pods that fit nowhere else, or may not be relocated, cost consolidation next to nothing."""

from unittest.mock import patch

from kai_py.plan.plan import Action
from kai_py.plan.victims.search import VictimSearch
from kai_py.plan.victims.trials import TrialPlacements
from tests.plan.actions.test_consolidate_devices import hardware, holder
from tests.support.scenario import claim, claiming, cluster, pod
from tests.support.worlds import gang, world

FULL = {f"n{i}": 8 for i in range(6)}
"""GPUs by node."""


def runs(name, node, gpus):
    return gang(name, pods=1, gpus=gpus, node=node)


def test_pods_that_fit_elsewhere_leave_before_a_single_one_that_does_not():
    stuck = [runs(f"stuck-{name}", name, 5) for name in FULL]
    small = [runs(f"small-{i}", "other", 1) for i in range(5)]
    wants = gang("wants", pods=1, gpus=6, created=90)
    # A refused set costs eight probes.
    plan = world(FULL | {"other": 8}, *stuck, *small, wants, victim_probes_per_gang=12).plan()
    assert {each.action for each in plan.evictions} == {Action.CONSOLIDATE}
    assert {each.pod.name.rsplit("-", 1)[0] for each in plan.evictions} <= {
        f"small-{i}" for i in range(5)
    }
    assert len(plan.evictions) == 3


def test_few_of_the_pods_that_fit_nowhere_else_are_tried():
    stuck = [runs(f"stuck-{name}", name, 5) for name in FULL]
    wants = gang("wants", pods=1, gpus=6, created=90)
    refused = TrialPlacements.goes_on_after_refusal
    with patch.object(
        TrialPlacements, "goes_on_after_refusal", autospec=True, side_effect=refused
    ) as tried:
        plan = world(FULL, *stuck, wants).plan()
    assert not plan.evictions
    assert tried.call_count == 2


def test_a_helper_is_found_for_a_pod_that_fits_nowhere_else():
    running = [
        runs("stuck", "first", 3),
        runs("helper", "second", 2),
        runs("beside", "second", 6),
        runs("other", "third", 6),
    ]
    wants = gang("wants", pods=1, gpus=8, created=90)
    plan = world({"first": 8, "second": 9, "third": 8}, *running, wants).plan()
    moved = {each.pod.name: each.relocated_to for each in plan.evictions}
    assert moved == {"stuck-0": "second", "helper-0": "third"}


def test_pods_whose_claims_outlive_them_are_no_candidates():
    outliving = [
        [
            claim(f"pod-{i}-gpu", 1, held_by=[f"pod-{i}"], on=[(f"n{i}", "gpu-0")]),
            claiming(pod(f"pod-{i}", 0, queue="team", node=f"n{i}"), f"pod-{i}-gpu"),
        ]
        for i in range(2)
    ]
    owned = [holder(f"pod-{i}", f"n{i}", 0) for i in range(2)]
    wants = [claim("both", 2, owner="wants"), claiming(pod("wants", 0, queue="team"), "both")]
    trial = VictimSearch._try_victims
    with patch.object(VictimSearch, "_try_victims", autospec=True, side_effect=trial) as tried:
        assert not cluster(*hardware(2, 2), *outliving, wants).plan().evictions
    assert not tried.called
    plan = cluster(*hardware(2, 2), *owned, wants).plan()
    assert [each.action for each in plan.evictions] == [Action.CONSOLIDATE]
