"""Claims without a volume: the volumes of nodes, and storage from which one can be made."""

from hypothesis import given as given_examples
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.api.records.core import LabelSelector, ObjectMeta, SelectorRequirement
from kai_py.api.records.storage import (
    CSIDriver,
    CSIDriverSpec,
    CSIStorageCapacity,
    VolumeResourceRequirements,
)
from kai_py.api.selectors import label_selector_matches
from kai_py.plan.state.limits.volumes import _selected_nodes
from kai_py.snapshot.derived_pod import AssumedBinding
from kai_py.snapshot.nodes import node_columns
from kai_py.snapshot.resources import ResourceIndex
from tests.plan.state.limits.volumes import (
    DISK,
    disks,
    local,
    local_class,
    plan,
    unbound,
    using,
    waiting_disk,
)
from tests.support.scenario import cluster, node, placed, queue


def given(plan):
    """Volume by claim."""
    pods = (pod for gang in plan.placements for pod in gang.pods)
    return {claim.name: volume for pod in pods for claim, volume in pod.volumes}


def test_a_pod_goes_where_a_volume_is_and_gets_the_smallest():
    volumes = [
        local("small", "n0", size="1Gi"),
        local("large", "n1", size="50Gi"),
        local("fit", "n1", size="6Gi"),
    ]
    found = plan(local_class(), volumes, unbound("a"), using("p", "a"), nodes=3)
    assert placed(found) == {"p": "n1"}
    assert given(found) == {"a": "fit"}


def test_what_is_claimed_or_of_another_class_or_kind_does_not_serve():
    for volume in (
        local("v", "n0", claimed=True),
        local("v", "n0", storage_class="other"),
        local("v", "n1"),
    ):
        found = plan(local_class(), volume, unbound("a"), using("p", "a"))
        assert placed(found) == {}
        assert "1 didn't find available persistent volumes to bind" in found.unplaced[0].message
    block = unbound("a", volume_mode="Block")
    assert not placed(plan(local_class(), local("v", "n0"), block, using("p", "a")))


def test_a_volume_serves_only_claims_of_its_attributes_class():
    plain, gold = local("v", "n0"), local("w", "n0", size="50Gi")
    gold = replace(gold, spec=replace(gold.spec, volume_attributes_class_name="gold"))
    wanting = unbound("a", volume_attributes_class_name="gold")
    assert not placed(plan(local_class(), plain, wanting, using("p", "a")))
    assert given(plan(local_class(), plain, gold, wanting, using("p", "a"))) == {"a": "w"}
    assert given(plan(local_class(), gold, unbound("a"), using("p", "a"))) == {}


def test_a_claim_with_a_selector_gets_an_existing_volume_of_a_class_that_provisions():
    class_that_provisions = replace(local_class(), provisioner=DISK)
    labelled = local("v", "n1", size="50Gi")
    labelled = replace(labelled, metadata=replace(labelled.metadata, labels={"tier": "fast"}))
    world = class_that_provisions, [labelled, local("w", "n0")], using("p", "a")
    selecting = unbound("a", selector=LabelSelector(match_labels={"tier": "fast"}))
    found = plan(*world, selecting, nodes=2)
    assert placed(found) == {"p": "n1"}
    assert given(found) == {"a": "v"}
    selecting = unbound("a", selector=LabelSelector(match_labels={"tier": "slow"}))
    assert not placed(plan(*world, selecting, nodes=2))
    found = plan(*world, unbound("a", selector=LabelSelector()), nodes=2)
    ((made,),) = ([pod.provision for pod in gang.pods] for gang in found.placements)
    assert made == ("a",)


def test_a_volume_is_given_once_however_many_nodes_reach_it():
    volumes = [local("v", "n0", "n1"), local("w", "n1")]
    pods = [using(f"p{i}", f"c{i}", created=i) for i in range(3)]
    claims = unbound("c0", "c1", "c2")
    found = plan(local_class(), volumes, claims, pods, nodes=2)
    assert len(placed(found)) == 2
    assert sorted(given(found).values()) == ["v", "w"]


def test_two_claims_of_a_pod_get_two_volumes_of_its_node():
    volumes = [local("v", "n0"), local("w", "n1"), local("x", "n1")]
    found = plan(local_class(), volumes, unbound("a", "b"), using("p", "a", "b"), nodes=2)
    assert placed(found) == {"p": "n1"}
    assert given(found) == {"a": "w", "b": "x"}


def test_a_volume_that_is_being_given_goes_to_no_other():
    world = cluster(
        node("n0"),
        queue("q", 0),
        local_class(),
        local("v", "n0"),
        unbound("a", "b"),
        using("p", "a"),
    )
    world.builder.assume(AssumedBinding("pod-p", "n0", volumes=("v",)))
    world.add(using("late", "b"))
    assert placed(world.plan()) == {}
    world.builder.forget("pod-p")
    assert len(placed(world.plan())) == 1


ZONE = "topology.kubernetes.io/zone"


def sized(name, size):
    resources = VolumeResourceRequirements(requests={"storage": size} if size else {})
    made = waiting_disk(name)
    return replace(made, spec=replace(made.spec, resources=resources))


def tells(*, capacity=True):
    """The driver tells what storage it has left."""
    return CSIDriver(metadata=ObjectMeta(name=DISK), spec=CSIDriverSpec(storage_capacity=capacity))


def offer(name, capacity, *, largest=None, storage_class="disks", nodes=None, zone=""):
    return CSIStorageCapacity(
        metadata=ObjectMeta(name=name, namespace="kube-system"),
        storage_class_name=storage_class,
        capacity=capacity,
        maximum_volume_size=largest,
        node_topology=LabelSelector(match_labels={ZONE: zone}) if zone else nodes,
    )


def zones():
    return [node(f"n-{zone}", labels={ZONE: zone}) for zone in "xyz"]


def ways(*objects, size="5Gi"):
    """The zones in which a pod with a claim of this size finds storage."""
    base = cluster(zones(), queue("q", 0), disks(), sized("data", size), *objects)
    found = ""
    for zone in "xyz":
        plan = base.add(using("p", "data", node_selector={ZONE: zone})).plan()
        found += zone if placed(plan) else ""
        if not placed(plan):
            assert "1 did not have enough free storage" in plan.unplaced[0].message
    return found


def test_a_volume_is_made_where_its_driver_has_storage_left():
    assert ways(tells(), offer("a", "10Gi", zone="x"), offer("b", "4Gi", zone="y")) == "x"
    assert ways(tells()) == "", "nothing is offered anywhere"
    assert ways(tells(), offer("a", "5Gi", nodes=LabelSelector())) == "xyz", "exactly enough"
    assert ways(tells(), offer("a", "5Gi", storage_class="others", zone="x")) == ""


def test_only_drivers_that_tell_are_asked():
    assert ways() == "xyz"
    assert ways(tells(capacity=False)) == "xyz"
    assert ways(tells(), size="") == "xyz", "a claim that asks for no size fits anywhere"


def test_one_volume_must_be_within_the_largest():
    assert ways(tells(), offer("a", "100Gi", largest="4Gi", zone="x")) == ""
    assert ways(tells(), offer("a", "1Gi", largest="5Gi", zone="x")) == "x", "as kube-scheduler"


def test_offers_without_size_or_topology_are_none():
    assert ways(tells(), offer("a", None, zone="x"), offer("b", "9Gi")) == ""
    assert ways(tells(), offer("a", "many", zone="x")) == ""


def test_segments_by_several_labels_and_expressions():
    both = LabelSelector(match_labels={ZONE: "x", "kubernetes.io/hostname": "n-x"})
    other = LabelSelector(match_labels={ZONE: "y", "kubernetes.io/hostname": "n-x"})
    beyond = SelectorRequirement(key=ZONE, operator="NotIn", values=("x", "y"))
    rest = LabelSelector(match_expressions=(beyond,))
    assert ways(tells(), offer("a", "9Gi", nodes=both), offer("b", "9Gi", nodes=other)) == "x"
    assert ways(tells(), offer("a", "9Gi", nodes=rest)) == "z"


def test_offers_and_drivers_may_come_later_and_go():
    world = cluster(zones(), queue("q", 0), disks(), sized("data", "5Gi"), using("p", "data"))
    assert placed(world.plan())
    world.add(tells())
    assert not placed(world.plan())
    world.add(offer("a", "9Gi", zone="y"))
    assert placed(world.plan()) == {"p": "n-y"}
    world.add(offer("a", "1Gi", zone="y"))
    assert not placed(world.plan())
    world.remove(tells())
    assert placed(world.plan())


LABELS = st.dictionaries(st.sampled_from("kl"), st.sampled_from("ab"))
EXPRESSIONS = st.builds(
    SelectorRequirement,
    key=st.sampled_from("kl"),
    operator=st.sampled_from(["In", "NotIn"]),
    values=st.sampled_from([("a",), ("a", "b")]),
)
SELECTORS = st.builds(
    LabelSelector,
    match_labels=LABELS,
    match_expressions=st.lists(EXPRESSIONS, max_size=1).map(tuple),
)


@given_examples(st.lists(SELECTORS, max_size=3), st.lists(LABELS, min_size=1, max_size=4))
def test_storage_is_offered_where_any_of_its_selectors_matches(selectors, labels):
    nodes = [node(f"n{i}", labels=each) for i, each in enumerate(labels)]
    columns = node_columns(nodes, ResourceIndex(), 1)
    expected = [
        any(label_selector_matches(each, one.metadata.labels) for each in selectors)
        for one in columns.records
    ]
    assert _selected_nodes(selectors, columns).tolist() == expected
