"""Pods of a gang whose claims have alternatives leave each other enough devices."""

from itertools import product

from hypothesis import given as given_examples
from hypothesis import settings
from hypothesis import strategies as st

from kai_py.api.records.resource import (
    DeviceClaim,
    DeviceRequest,
    DeviceSubRequest,
    ResourceClaimSpec,
)
from kai_py.plan.plan import Stage
from kai_py.plan.session.later_alternatives import _later_alternatives, have_alternatives
from kai_py.snapshot.shape import ClaimUse, Shape
from tests.plan.test_device_options import asking, given, listed, world
from tests.support import worlds
from tests.support.examples import examples
from tests.support.records import replace
from tests.support.scenario import START, claim, claiming, evicted, job, nominated, pod


def gang(*requests_of_pods, **options):
    owner = job("gang", len(requests_of_pods), "team")
    yield owner
    for i, request in enumerate(requests_of_pods):
        yield from asking(f"p{i}", request, owner=owner, **options)


def devices_of_pods(plan):
    return [count for (_, _), count in sorted(given(plan).items())]


def test_a_gang_whose_first_alternatives_do_not_all_fit_takes_later_ones():
    plan = world(None, *gang(*[listed(2, 1)] * 3), sizes=(4,)).plan()
    assert devices_of_pods(plan) == [1, 1, 1]
    assert nominated(plan) == {}


def test_the_first_alternatives_that_all_pods_can_have_are_taken():
    assert devices_of_pods(world(None, *gang(*[listed(4, 2, 1)] * 2), sizes=(4,)).plan()) == [2, 2]
    assert devices_of_pods(world(None, *gang(*[listed(4, 2, 1)] * 3), sizes=(4,)).plan()) == [1] * 3
    assert devices_of_pods(world(None, *gang(*[listed(2, 1)] * 2), sizes=(4,)).plan()) == [2, 2]


def test_the_limit_of_a_queue_and_the_nodes_decide_together():
    mixed = gang(listed(6, 3, 1), listed(6, 3), listed(3, 2))
    assert devices_of_pods(world(8, *mixed, sizes=(7,)).plan()) == [1, 3, 3]


def test_a_gang_for_which_pods_were_evicted_starts_with_the_alternatives_that_it_was_promised():
    victim = claiming(pod("low", 0, queue="team", node="n0", created=900), "low")
    devices = [("n0", f"gpu-{i}") for i in range(2)]
    held = claim("low", 2, owner="low", held_by=("low",), on=devices)
    ours = list(gang(*[listed(2, 1)] * 3, priority=5))
    cluster = world(None, victim, held, *ours, sizes=(4,))
    first = cluster.plan()
    assert (evicted(first), sorted(nominated(first))) == (["low"], ["p0", "p1", "p2"])
    cluster.remove(victim, held)
    for each in first.nominations:
        cluster.builder.nominate(each.pod.uid, each.node, START + 1000)
    second = cluster.plan(1001)
    assert devices_of_pods(second) == [1, 1, 1]
    assert (second.evictions, second.nominations) == ((), ())


def test_a_gang_that_fits_with_no_alternative_says_what_its_first_ones_lack():
    plan = world(None, *gang(*[listed(2, 1)] * 5), sizes=(4,)).plan()
    [waits] = plan.unplaced
    assert (waits.stage, plan.placements, plan.nominations) == (Stage.DEVICES, (), ())
    assert "5 pods must start together but only 2 can be scheduled" in waits.message


lists = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=2, unique=True), max_size=3)


@settings(max_examples=examples(60))
@given_examples(lists.filter(len), st.integers(1, 6))
def test_a_gang_starts_on_a_node_exactly_if_some_alternatives_fit(asked, size):
    plan = world(None, *gang(*(listed(*each) for each in asked)), sizes=(size,)).plan()
    fits = any(sum(counts) <= size for counts in product(*asked))
    assert bool(plan.placements) is fits
    assert plan.nominations == ()


def claim_spec(*alternatives):
    """A claim with so many alternatives for each request; 0: the request has none."""
    requests = tuple(
        DeviceRequest(
            name=f"r{at}",
            first_available=tuple(DeviceSubRequest(name=f"s{n}") for n in range(count)),
        )
        for at, count in enumerate(alternatives)
    )
    return ResourceClaimSpec(devices=DeviceClaim(requests=requests))


claims = st.lists(st.lists(st.integers(0, 3), max_size=2), max_size=2)


@given_examples(claims)
def test_later_alternatives_leave_out_the_fewest_of_the_first_requests(asked):
    counts = [count for each in asked for count in each]
    expected = [
        [tuple(f"s{n}" for n in range(*left)) for left in zip(first, counts, strict=True)]
        for first in product(*(range(max(count, 1)) for count in counts))
    ]
    found = [
        [
            tuple(option.name for option in request.first_available)
            for spec in specs.values()
            for request in spec.devices.requests
        ]
        for specs in _later_alternatives({at: claim_spec(*each) for at, each in enumerate(asked)})
    ]
    assert found == expected[1:]


@given_examples(claims)
def test_a_gang_has_alternatives_if_any_request_of_any_pod_has_several(asked):
    members = []
    for number, counts in enumerate(asked):
        use = ClaimUse(name="c", spec=claim_spec(*counts))
        shape = Shape(number=number, requests={}, claims=(use,))
        members.append(replace(worlds.gang("g", pods=1).members[0], shape=shape))
    assert have_alternatives(members) is any(count > 1 for counts in asked for count in counts)
