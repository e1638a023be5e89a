"""Pods and nodes with NUMA zones, from the objects that users and exporters write to the plan."""

from msgspec.structs import replace

from kai_py.api.records.core import Container, ObjectMeta, ResourceRequirements
from kai_py.api.records.node import NodeResourceTopology, TopologyAttribute, Zone, ZoneResource
from kai_py.snapshot.derived_pod import AssumedBinding
from kai_py.snapshot.numa_alignment import OBSERVED_ZONES_KEY
from tests.support.scenario import cluster, evicted, node, placed, pod, queue


def report(name, *available, policy="single-numa-node", scope="pod", old_word="", cpus=4):
    attributes = {"topologyManagerPolicy": policy, "topologyManagerScope": scope}
    return NodeResourceTopology(
        metadata=ObjectMeta(name=name, uid=f"zones-{name}"),
        topology_policies=(old_word,) if old_word else (),
        attributes=()
        if old_word
        else tuple(TopologyAttribute(name=k, value=v) for k, v in attributes.items()),
        zones=tuple(
            Zone(
                name=f"node-{number}",
                resources=(ZoneResource(name="cpu", allocatable=str(cpus), available=str(free)),),
            )
            for number, free in enumerate(available)
        ),
    )


def whole(name, cpus, *, zone="", guaranteed=True, **options):
    """A pod of one container with whole CPUs; ``zone``: where its node says that it has them."""
    notes = f'[{{"zone": "{zone}", "amount": {{"cpu": "{cpus}"}}}}]'
    annotations = {OBSERVED_ZONES_KEY: notes} if zone else {}
    made = pod(name, 0, queue="q", annotations=annotations, **options)
    asked = {"cpu": str(cpus), "memory": "1Gi"}
    resources = ResourceRequirements(requests=asked, limits=asked if guaranteed else {})
    return replace(
        made, spec=replace(made.spec, containers=(Container(name="main", resources=resources),))
    )


def world(*objects, nodes=1):
    return cluster([node(f"n{i}") for i in range(nodes)], queue("q", 0), *objects)


def test_a_pod_that_no_zone_holds_waits_and_says_why():
    found = world(report("n0", 4, 4), whole("big", 6)).plan()
    assert placed(found) == {}
    assert "1 couldn't align the pod's resources to NUMA zones" in found.unplaced[0].message


def test_an_amount_that_cannot_be_read_is_told_of_the_node():
    found = world(report("n0", 4, "lots"), whole("small", 3)).plan()
    assert placed(found) == {"small": "n0"}
    (problem,) = found.problems
    assert (problem.object.kind, problem.object.name) == ("Node", "n0")
    assert problem.message == (
        "NodeResourceTopology n0, zone node-1, resource cpu: available 'lots' is not a quantity: "
        "treated as 0"
    )


def test_other_policies_and_other_pods_are_not_held_up():
    assert placed(world(whole("big", 6)).plan())
    assert placed(world(report("n0", 4, 4, policy="best-effort"), whole("big", 6)).plan())
    assert placed(world(report("n0", 4, 4, policy="none"), whole("big", 6)).plan())
    assert placed(world(report("n0", 4, 4, policy="restricted"), whole("big", 6)).plan())
    assert placed(world(report("n0", 4, 4), whole("big", 6, guaranteed=False)).plan())


def test_the_words_of_the_old_version_are_read():
    assert not placed(
        world(report("n0", 4, 4, old_word="SingleNUMANodePodLevel"), whole("b", 6)).plan()
    )
    assert placed(world(report("n0", 4, 4, old_word="RestrictedPodLevel"), whole("b", 6)).plan())
    assert placed(world(report("n0", 4, 4, old_word="BestEffortPodLevel"), whole("b", 6)).plan())


def test_pods_of_one_cycle_share_the_zones():
    found = world(report("n0", 4, 4), [whole(f"p{i}", 3) for i in range(3)]).plan()
    assert len(placed(found)) == 2


def test_a_gang_goes_where_its_pods_find_zones():
    found = world(
        report("n0", 4, 1), report("n1", 4, 4), [whole(f"p{i}", 3) for i in range(3)], nodes=2
    ).plan()
    assert sorted(placed(found).values()) == ["n0", "n1", "n1"]


def test_a_bound_pod_counts_until_the_node_reports_again():
    at_work = world(report("n0", 4, 1), whole("first", 3))
    at_work.builder.assume(AssumedBinding("pod-first", "n0"))
    at_work.add(whole("second", 3))
    assert placed(at_work.plan()) == {}
    at_work.add(report("n0", 1, 4))
    assert placed(at_work.plan()) == {"second": "n0"}


def test_a_pod_that_could_not_be_bound_counts_no_more():
    at_work = world(report("n0", 4, 1), whole("first", 3))
    at_work.builder.assume(AssumedBinding("pod-first", "n0"))
    at_work.builder.forget("pod-first")
    assert placed(at_work.plan()) == {"first": "n0"}


def test_capacity_of_a_zone_is_won_and_held_by_priority():
    found = world(
        report("n0", 1, 1),
        whole("low", 3, node="n0", zone="node-1"),
        whole("high", 3, node="n0", zone="node-0", priority=5),
        whole("urgent", 3, priority=10),
    ).plan()
    assert evicted(found) == ["low"]
    assert [each.pod.name for each in found.nominations] == ["urgent"]


def test_a_pod_that_ends_frees_the_zone_it_was_seen_in():
    leaving = whole("old", 3, node="n0", zone="node-0", leaving=True)
    found = world(report("n0", 0, 1), leaving, whole("new", 3)).plan()
    assert [each.pod.name for each in found.nominations] == ["new"]
    assert world(report("n0", 0, 1), leaving, whole("new", 4)).plan().nominations == ()


def test_what_a_node_reports_no_more_has_no_effect():
    at_work = world(report("n0", 1, 1), whole("p", 3))
    assert placed(at_work.plan()) == {}
    at_work.remove(report("n0", 1, 1))
    assert placed(at_work.plan()) == {"p": "n0"}


def test_pods_that_are_not_aligned_leave_no_zone_behind():
    leaving = whole("old", 3, node="n0", guaranteed=False, leaving=True)
    found = world(report("n0", 0, 1), leaving, whole("new", 1)).plan()
    assert placed(found) == {"new": "n0"}
    assert not found.failed_extensions


def test_an_aligned_pod_leaves_a_node_without_zones():
    full = whole("low", 60, node="n1"), whole("urgent", 60, priority=10)
    found = world(report("n0", 4, 4), *full, nodes=2).plan()
    assert evicted(found) == ["low"]
    assert not found.set_aside


def test_a_pod_may_need_as_many_zones_as_its_node_has():
    """Whatever the number of zones of other nodes."""
    reports = (
        report("n0", 4, 4, policy="restricted"),
        report("n1", 3, 3, 3, policy="restricted", cpus=3),
    )
    assert placed(world(*reports, whole("wide", 9), nodes=2).plan()) == {"wide": "n1"}


def test_a_report_of_a_node_that_is_not_there_says_nothing():
    found = world(report("gone", 1, 1), report("n0", 4, 4), whole("small", 3)).plan()
    assert placed(found) == {"small": "n0"}
