import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.policy.queue_limits import (
    QuotaExceeded,
    check_limits,
    check_usage,
    display_amount,
    display_unit,
)
from kai_py.policy.queue_usage import QueueUsage, QuotaBound, exceeds, is_above
from kai_py.snapshot.tables.queue_tree import build_queue_table
from kai_py.snapshot.tables.queues import DEVICE_ATTRIBUTE, DEVICE_SELECTOR, QueueInfo

RESOURCES = ("cpu", "memory", "gpu")


def stand(specs, allocated=None, non_preemptible=None):
    """Standing of queues that hold ``{name: {resource: amount}}`` of their own."""
    table = build_queue_table(specs, RESOURCES)[0]

    def held(by_queue):
        own = np.zeros((len(RESOURCES), len(table)))
        for name, row in (by_queue or {}).items():
            for resource, amount in row.items():
                own[RESOURCES.index(resource), table.positions[name]] = amount
        return table.subtree_sums(own)

    none = np.zeros((len(RESOURCES), len(table)))
    total = np.zeros(len(RESOURCES))
    return QueueUsage(table, total, held(allocated), held(non_preemptible), none)


def ask(**amounts):
    return np.array([float(amounts.get(name, 0)) for name in RESOURCES])


PARENT = QueueInfo(name="dept", max={"gpu": 10}, deserved={"gpu": 6, "cpu": 8000})
CHILD = QueueInfo(name="team", parent="dept", max={"gpu": 8}, deserved={"gpu": 6, "cpu": 9000})
SIBLING = QueueInfo(name="other", parent="dept")


def check(standing, request, *, preemptible=True):
    team = standing.queues.positions["team"]
    return check_limits(standing, team, request, preemptible=preemptible)


def test_the_nearest_queue_that_refuses_is_named():
    standing = stand([PARENT, CHILD, SIBLING], {"team": {"gpu": 6}, "other": {"gpu": 3}})
    assert check(standing, ask(gpu=1)) is None
    refused = check(standing, ask(gpu=2))
    assert (refused.bound, refused.queue) == (QuotaBound.MAX, "dept")
    assert (refused.limit, refused.allocated, refused.requested) == (10, 9, 2)
    assert check(standing, ask(gpu=3)).queue == "team"


def test_resources_not_asked_for_do_not_refuse():
    standing = stand([PARENT, CHILD], {"team": {"gpu": 11}})
    assert check(standing, ask(cpu=1)) is None


def test_non_preemptible_work_stays_within_deserved_at_every_level():
    specs = [PARENT, CHILD, SIBLING]
    standing = stand(specs, {"team": {"gpu": 2}}, {"team": {"gpu": 2}, "other": {"gpu": 3}})
    assert check(standing, ask(gpu=2)) is None
    refused = check(standing, ask(gpu=2), preemptible=False)
    assert (refused.bound, refused.queue, refused.allocated) == (QuotaBound.DESERVED, "dept", 5)


def test_sums_of_fractions_are_not_refused_for_float_noise():
    team = QueueInfo(name="team", max={"gpu": 0.3})
    standing = stand([team], {"team": {"gpu": 0.1 + 0.1}})
    assert 0.1 + 0.1 + 0.1 > 0.3
    assert check(standing, ask(gpu=0.1)) is None
    assert check(standing, ask(gpu=0.11)) is not None


@pytest.mark.parametrize(
    ("request_", "preemptible", "resource", "text"),
    [
        (
            ask(gpu=9),
            True,
            "nvidia.com/gpu",
            "team quota has reached the allowable limit of GPUs. Limit is 8 GPUs, currently 1 GPUs "
            "allocated and workload requested 9 GPUs",
        ),
        (
            ask(cpu=8500),
            False,
            "cpu",
            "Non-preemptible workload is over quota. Workload requested 8.5 CPU cores, but dept "
            "quota is 8 CPU cores, while 0 CPU cores are already allocated for non-preemptible "
            "pods. Use a preemptible workload to go over quota.",
        ),
    ],
)
def test_messages_keep_the_known_shape(request_, preemptible, resource, text):
    standing = stand([PARENT, CHILD], {"team": {"gpu": 1}})
    refused = check(standing, request_, preemptible=preemptible)
    assert refused.message(resource) == text


amounts = st.integers(0, 4)
bounds = st.none() | amounts


levels_of_bounds = st.lists(st.tuples(bounds, bounds, amounts, amounts), min_size=3, max_size=3)


@given(levels_of_bounds, amounts, st.booleans())
def test_every_queue_above_limits_by_its_own_bounds(levels, wanted, preemptible):
    """A queue below another below a third: bounds of a GPU, and of pods that stay."""
    names = ["root", "dept", "team"]
    specs, held, stays = [], {}, {}
    for name, parent, (most, deserved, has, more) in zip(names, ["", *names], levels, strict=False):
        specs.append(
            QueueInfo(
                name=name,
                parent=parent,
                max={} if most is None else {"gpu": most},
                deserved={} if deserved is None else {"gpu": deserved},
            )
        )
        held[name], stays[name] = {"gpu": has + more, "cpu": 9}, {"gpu": has}

    def exceeded(requested, total_of):
        """Bound and queue of the first that is exceeded, from the nearest queue up."""
        for bound, limit_of in ((QuotaBound.MAX, 0), (QuotaBound.DESERVED, 1)):
            for depth in (2, 1, 0):
                limit = levels[depth][limit_of]
                limit = (math.inf, 0)[limit_of] if limit is None else limit
                if total_of(bound, depth) + requested > limit:
                    return bound, names[depth]
            if preemptible:
                return None
        return None

    def allocated(bound, depth):
        parts = slice(2, 4) if bound is QuotaBound.MAX else slice(2, 3)
        return sum(sum(level[parts]) for level in levels[depth:])

    standing = stand(specs, held, stays)
    team = standing.queues.positions["team"]
    refused = check(standing, ask(gpu=wanted, memory=1), preemptible=preemptible)
    found = None if refused is None else (refused.bound, refused.queue)
    assert found == (exceeded(wanted, allocated) if wanted else None)
    counted = check_usage(standing, team, ask(gpu=wanted), preemptible=preemptible)
    found = None if counted is None else (counted.bound, counted.queue)
    assert found == (exceeded(0, allocated) if wanted else None)


@pytest.mark.parametrize("bound", [0.0, 8.0, -8.0, 1e12])
def test_an_amount_is_above_a_bound_by_more_than_a_rounding_error(bound):
    error = 1e-9 + 1e-12 * abs(bound)
    for amount, above in ((bound, 0), (bound + error / 2, 0), (bound + 2 * error, 1)):
        assert is_above(amount, bound) == exceeds(np.array([amount]), np.array([bound]))[0] == above


@pytest.mark.parametrize(
    ("resource", "amount", "unit", "text"),
    [
        ("cpu", 1500.0, "CPU cores", "1.5 CPU cores"),
        ("memory", 2e9, "GB memory", "2 GB memory"),
        ("gpu", 1.0, "GPUs", "1 GPU"),
        ("nvidia.com/gpu", 2.0, "GPUs", "2 GPUs"),
        ("amd.com/gpu", 2.0, "amd.com/gpu", "2 amd.com/gpu"),
        ("deviceclass/mig", 2.0, "devices of class mig", "2 devices of class mig"),
        (
            f"{DEVICE_ATTRIBUTE}type=A|B",
            1.0,
            "devices with type A or B",
            "1 devices with type A or B",
        ),
        (f"{DEVICE_SELECTOR}x > 1", 3.0, "devices with x > 1", "3 devices with x > 1"),
    ],
)
def test_amounts_are_shown_in_the_units_of_their_resource(resource, amount, unit, text):
    assert display_unit(resource)[0] == unit
    assert display_amount(amount, resource) == text


@pytest.mark.parametrize(
    ("bound", "name"), [(QuotaBound.MAX, "max"), (QuotaBound.DESERVED, "deserved")]
)
def test_a_request_larger_than_its_bound_says_so(bound, name):
    refused = QuotaExceeded(bound, "team", 0, limit=8000, allocated=0, requested=9000)
    expected = f"it requests 9 CPU cores at once; {name} of queue team is 8"
    assert refused.infeasible("cpu") == expected
