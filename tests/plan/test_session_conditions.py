"""What gangs of a cycle have in common, cost and may take: each condition alone decides."""

from types import SimpleNamespace

import numpy as np
import pytest

from kai_py.api.choices import FillStrategy
from kai_py.api.gpu_share import GpuShare
from kai_py.api.records.resource import ResourceClaimSpec
from kai_py.plan.cycle.pending_gangs import LastDue, PendingGangs, due_amounts
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.placement.pods import ShapePlacer
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.session import quota_check
from kai_py.plan.session.device_options import _naming_closed
from kai_py.plan.session.gang_queue import has_fixed_cost
from kai_py.plan.session.quota_check import check_reserved_quota
from kai_py.plan.state.reservations import Reservation, Reservations
from kai_py.snapshot.shape import ClaimUse
from tests.plan.test_conditions import TWIN, changed
from tests.support.records import replace
from tests.support.worlds import gang

BY_CLAIM = replace(TWIN.members[0].shape, claims=(ClaimUse("c", ResourceClaimSpec()),))
BY_FRACTION = replace(TWIN.members[0].shape, gpu_share=GpuShare(fraction=0.5))
BY_MEMORY = replace(TWIN.members[0].shape, gpu_share=GpuShare(memory=1024))


@pytest.mark.parametrize(
    ("made", "is_fixed"),
    [
        (TWIN, True),
        (changed(shape=BY_FRACTION), True),
        (changed(shape=BY_MEMORY), False),
        (changed(shape=BY_CLAIM), False),
    ],
)
def test_pods_cost_the_same_on_any_node_unless_they_get_devices_or_memory_of_a_gpu(made, is_fixed):
    assert has_fixed_cost(PlacementRequest(made.members, is_elastic=False)) is is_fixed


def test_pending_gangs_are_counted_by_queue_size_and_charge():
    same = [gang(name, pods=2) for name in "ab"]
    others = [gang("c", pods=1), gang("d", pods=2, gpus=2), gang("e", pods=2, queue="other")]
    mixed = [replace(changed(charge={"gpu": 2.0}), key=name) for name in ("f", "g")]
    gangs = {each.key: each for each in (*same, *others, *mixed)}
    sizes = PendingGangs(gangs, tuple(gangs)).sizes
    assert sorted((each.key, count) for each, count in sizes) == sorted(
        [(same[0].key, 2), *((each.key, 1) for each in (*others, *mixed))]
    )


@pytest.mark.parametrize(
    ("ahead", "queue", "most", "refused"),
    [
        ("", "team", 0.0, False),
        ("first", "team", 5.0, True),
        ("first", "team", 6.0, False),
        ("first", "other", 5.0, False),
        ("g", "team", 5.0, False),
    ],
)
def test_quota_that_is_reserved_for_a_gang_ahead_is_not_left_for_others(
    monkeypatch, ahead, queue, most, refused
):
    monkeypatch.setattr(
        quota_check, "check_max", lambda _usage, _queue, cost: "over" if max(cost) > most else None
    )
    state = SimpleNamespace(
        placer=SimpleNamespace(reservations=Reservations()),
        quota=SimpleNamespace(queues=SimpleNamespace(positions={"team": 0}), usage=None),
    )
    if ahead:
        reserved = Reservation(gang(ahead, queue=queue), (0,), 0.0, np.array([4.0, 9.0]))
        state.placer.reservations.active.append(reserved)
    found = check_reserved_quota(state, gang("g", pods=1), np.array([2.0, 0.0]))
    assert (found is not None and found.stage is Stage.QUEUE_MAX) is refused


@pytest.mark.parametrize(
    ("scored", "strategy", "packed"),
    [
        (False, FillStrategy.BINPACK, True),
        (False, FillStrategy.SPREAD, False),
        (True, FillStrategy.BINPACK, False),
        (True, FillStrategy.SPREAD, False),
    ],
)
def test_pods_are_packed_without_scores_if_they_are_not_to_be_spread(scored, strategy, packed):
    fits = SimpleNamespace(running_fit=lambda *_: "running fit")
    placer = ShapePlacer(
        fits=fits,
        scoring="scores" if scored else None,
        gpu_strategy=strategy,
        cpu_strategy=strategy,
    )
    found = placer.packed_fit(None, TWIN.members[0].shape, None)
    assert found == ("running fit" if packed else None)


@pytest.mark.parametrize(
    ("message", "closed", "named"),
    [("It waits", ("r/a",), True), ("It waits", (), False), ("", ("r/a",), False)],
)
def test_alternatives_beyond_the_quota_are_named_where_anything_is_said(message, closed, named):
    reason = Unschedulable(Stage.QUEUE_MAX, message)
    found = _naming_closed(reason, closed)
    assert ("alternatives beyond the quota: r/a" in found.message) is named
    assert named or found is reason


@pytest.mark.parametrize(
    ("allocated", "fair", "due"),
    [
        ([0.0, 0.0], [5.0, 9.0], [4.0, 4.0]),
        ([0.0, 0.0], [9.0, 9.0], [6.0, 6.0]),
        ([4.0, 0.0], [5.0, 9.0], [4.0, 0.0]),
        ([7.0, 0.0], [5.0, 9.0], [7.0, 0.0]),
    ],
)
def test_a_queue_is_due_what_it_has_and_as_many_of_its_gangs_as_fit_into_its_share(
    allocated, fair, due
):
    def rows(amounts):
        return np.array([amounts]).T

    quota = SimpleNamespace(
        usage=SimpleNamespace(allocated=rows(allocated), fair=rows(fair)),
        queues=SimpleNamespace(ancestry=[(0,)]),
        queue_of=lambda _gang: 0,
        cost=lambda _charge: np.array([1.0, 1.0]),
    )
    pending = ((gang("g", pods=2), 3),)
    assert due_amounts(pending, quota, LastDue())[:, 0].tolist() == due
