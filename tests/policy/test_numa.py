"""The kubelet's rules for NUMA zones, against a slow search that tries every set of zones."""

from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from kai_py.policy.numa import allocate_zones, free_after_end, free_after_start, replicas_by_zones
from kai_py.snapshot.numa_alignment import Alignment
from kai_py.snapshot.tables.numa import NumaNode, NumaPolicy

CPU, GPU = "cpu", "nvidia.com/gpu"


def numa(policy="single-numa-node", *, by_pod=True, zones=((4.0, 2.0), (4.0, 2.0))):
    names = tuple(f"node-{number}" for number in range(len(zones)))
    return NumaNode(policy and NumaPolicy(policy), by_pod, names, (CPU, GPU), zones, zones)


def pod(cpu=0.0, gpu=0.0):
    return Alignment({name: amount for name, amount in ((CPU, cpu), (GPU, gpu)) if amount})


def containers(*running, starting=()):
    return Alignment(
        {CPU: sum(running)}, tuple({CPU: s} for s in starting), tuple({CPU: r} for r in running)
    )


def start(node, wanted, free=None):
    return free_after_start(node, node.available if free is None else free, wanted)


def test_a_pod_gets_the_lowest_zone_that_has_all_of_it():
    assert start(numa(), pod(3, 1)) == ((1, 1), (4, 2))
    assert start(numa(), pod(3, 1), ((4, 0), (4, 2))) == ((4, 0), (1, 1))


def test_enough_in_sum_is_not_enough_for_a_single_zone():
    assert start(numa(), pod(6)) is None
    assert start(numa(), pod(2, 1), ((4, 0), (1, 2))) is None


def test_restricted_takes_as_many_zones_as_an_empty_node_would():
    node = numa("restricted")
    assert start(node, pod(6)) == ((0, 2), (2, 2))
    assert start(node, pod(3), ((2, 2), (2, 2))) is None, "on an empty node one zone would do"
    assert start(node, pod(9)) is None


def test_restricted_wants_one_set_of_zones_for_all_resources():
    assert start(numa("restricted"), pod(6, 1)) is None
    assert start(numa("restricted"), pod(6, 3)) == ((0, 0), (2, 1))


def test_containers_are_aligned_one_by_one_in_scope_container():
    wanted = containers(3, 3)
    assert start(numa(by_pod=False), wanted) == ((1, 2), (1, 2))
    assert start(numa(by_pod=True), wanted) is None
    assert start(numa(by_pod=False), containers(3, 3, 3)) is None


def test_init_containers_need_a_zone_and_give_it_back():
    node = numa(by_pod=False)
    assert start(node, containers(2, starting=(4, 4))) == ((2, 2), (4, 2))
    assert start(node, containers(2, starting=(5,))) is None


def test_what_zones_do_not_report_is_not_aligned():
    wanted = Alignment({"memory": 1e12})
    assert start(numa(), wanted) == numa().available
    assert replicas_by_zones(numa(), numa().available, wanted, 7) == (7, 7)


def test_pods_are_counted_one_after_the_other():
    assert replicas_by_zones(numa(), numa().available, pod(2), 9) == (4, 4)
    assert replicas_by_zones(numa(), numa().available, pod(3), 9) == (2, 2)
    assert replicas_by_zones(numa(), numa().available, pod(1), 3) == (3, 3)


def test_pods_are_counted_by_the_zones_that_they_need():
    node = numa(None)
    assert replicas_by_zones(node, node.available, pod(3), 2) == (2, 2)
    assert replicas_by_zones(node, node.available, pod(3), 4) == (2, 4), "no pod is refused"
    assert replicas_by_zones(node, node.available, pod(6), 1) == (0, 1)
    restricted = numa("restricted")
    assert replicas_by_zones(restricted, restricted.available, pod(6), 3) == (0, 1)


def test_a_node_that_refuses_no_pod_gives_the_fewest_zones_or_what_there_is():
    node = numa(None)
    assert allocate_zones(node, node.available, pod(3, 1)) == (((1, 1), (4, 2)), 1)
    assert allocate_zones(node, ((2, 2), (2, 2)), pod(3)) == (((0, 2), (1, 2)), 2)
    assert allocate_zones(node, node.available, pod(9)) == (((0, 2), (0, 2)), 2)


def test_of_several_containers_the_one_with_most_zones_counts():
    node = numa(None, by_pod=False)
    assert allocate_zones(node, node.available, containers(3, 3)) == (((1, 2), (1, 2)), 1)
    assert allocate_zones(node, node.available, containers(1, 5, 1)).zone_count == 2
    assert allocate_zones(node, node.available, containers(1, starting=(5,))).zone_count == 2


def test_what_a_pod_had_is_free_where_it_was_seen():
    free = ((1.0, 2.0), (1.0, 2.0))
    seen = (("node-1", {CPU: 3.0}),)
    assert free_after_end(numa(), free, pod(3), seen) == ((1, 2), (4, 2))
    assert free_after_end(numa(), free, pod(3)) == ((4, 2), (1, 2))
    assert free_after_end(numa(), ((1.0, 2.0), (4.0, 2.0)), pod(3), seen) == ((1, 2), (4, 2)), (
        "at most"
    )


amounts = st.integers(0, 4).map(float)
zone = st.tuples(amounts, amounts)


@given(
    st.sampled_from(NumaPolicy),
    st.lists(st.tuples(zone, zone), min_size=1, max_size=4),
    st.integers(0, 6),
    st.integers(0, 6),
)
def test_a_pod_starts_where_some_set_of_zones_will_do(policy, pairs, cpu, gpu):
    zones = tuple(tuple(map(max, *pair)) for pair in pairs)
    free = tuple(tuple(map(min, *pair)) for pair in pairs)
    node, wanted = numa(policy, zones=zones), pod(cpu, gpu)
    left = free_after_start(node, free, wanted)
    assert (left is not None) == by_trying_all(node, free, wanted)
    if left is not None:
        taken = [sum(zone[at] for zone in free) - sum(zone[at] for zone in left) for at in (0, 1)]
        assert taken == [cpu, gpu]
        assert all(amount >= 0 for row in left for amount in row)


def by_trying_all(node, free, wanted):
    """A set of zones has all; none smaller could have any one resource on an empty node."""
    asked = [(at, wanted.pod[name]) for at, name in enumerate(node.resources) if name in wanted.pod]
    rows = range(len(node.zones))
    sets = list(chain.from_iterable(combinations(rows, size) for size in range(1, len(rows) + 1)))

    def has(zones, amounts, at, amount):
        return sum(amounts[z][at] for z in zones) >= amount

    def accepted(zones):
        if node.policy is NumaPolicy.SINGLE_NUMA_NODE:
            return len(zones) == 1
        return not any(
            has(fewer, node.allocatable, at, amount)
            for at, amount in asked
            for fewer in sets
            if len(fewer) < len(zones)
        )

    return not asked or any(
        accepted(zones) and all(has(zones, free, at, amount) for at, amount in asked)
        for zones in sets
    )


@given(
    st.sampled_from([None, *NumaPolicy]),
    st.booleans(),
    st.lists(st.tuples(zone, zone), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=3),
)
def test_a_pod_that_starts_later_needs_no_fewer_zones(policy, by_pod, pairs, sizes):
    zones = tuple(tuple(map(max, *pair)) for pair in pairs)
    free = tuple(tuple(map(min, *pair)) for pair in pairs)
    node = numa(policy, by_pod=by_pod, zones=zones)
    parts = [pod(*size).pod for size in sizes]
    wanted = Alignment(pod(*map(sum, zip(*sizes, strict=True))).pod, (), tuple(parts))
    counted = replicas_by_zones(node, free, wanted, 5)
    needs = []
    while len(needs) < 5 and (taken := allocate_zones(node, free, wanted)) is not None:
        free = taken.free
        needs.append(taken.zone_count)
    assert needs == sorted(needs)
    assert counted == tuple(sum(n <= z for n in needs) for z in range(1, len(zones) + 1))
    assert counted[-1] == 5 or policy is not None


@given(
    st.lists(st.tuples(zone, zone), min_size=1, max_size=4),
    st.integers(0, 6),
    st.integers(0, 6),
)
def test_a_node_that_refuses_no_pod_needs_as_few_zones_as_any_set(pairs, cpu, gpu):
    zones = tuple(tuple(map(max, *pair)) for pair in pairs)
    free = tuple(tuple(map(min, *pair)) for pair in pairs)
    wanted = pod(cpu, gpu)
    rows = range(len(zones))
    sizes = [
        size
        for size in range(1, len(rows) + 1)
        for chosen in combinations(rows, size)
        if all(sum(free[z][at] for z in chosen) >= n for at, n in ((0, cpu), (1, gpu)))
    ]
    found = allocate_zones(numa(None, zones=zones), free, wanted)
    assert found.zone_count == min(sizes, default=len(rows))
