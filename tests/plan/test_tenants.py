"""What a tenant gains by what it writes on its own objects: nothing."""

import pytest
from msgspec.structs import replace

from kai_py.api.gpu_share import GpuShare
from kai_py.api.records.core import ObjectMeta, PartialObjectMetadata
from kai_py.grouping.admitted import ADMITTED_KEY, Terms, read_terms
from kai_py.grouping.gang_settings import Preemptibility
from kai_py.plan.plan import Stage
from tests.support.scenario import QUEUE, cluster, job_with_pods, node, placed, pod, queue, shared

MINE = {"namespaces": {"names": ["default"]}}
VICTIMS = {"namespaces": {"names": ["victims"]}}


def of(namespace, objects):
    """The same objects in another namespace."""
    listed = objects if isinstance(objects, list) else [objects]
    return [replace(o, metadata=replace(o.metadata, namespace=namespace)) for o in listed]


def victims(count, **options):
    return of("victims", job_with_pods("work", count, queue="victims", **options))


def two_queues(maximum=4.0):
    return [queue("mine", 4, 4, **MINE), queue("victims", 4, maximum, **VICTIMS)]


def test_a_pod_on_no_node_charges_nothing():
    ghost = pod("ghost", 1000, queue="q", node="ghost-node")
    world = cluster(queue("q", 2, 2), node("a", 2), ghost, pod("late", 2, queue="q"))
    assert placed(world.plan()) == {"late": "a"}
    world.remove(pod("late", 2, queue="q"))
    arrived = world.add(node("ghost-node", 1000), pod("later", 2, queue="q")).plan()
    assert [told.stage for told in arrived.unplaced] == [Stage.QUEUE_MAX]
    world.remove(node("ghost-node"))
    assert placed(world.plan()) == {"later": "a"}


def test_the_order_in_which_pods_and_nodes_arrive_is_of_no_importance():
    running, late = pod("r", 2, queue="q", node="a"), pod("late", 1, queue="q")
    for objects in ((node("a", 4), running), (running, node("a", 4))):
        plan = cluster(*objects, queue("q", 2, 2), late).plan()
        assert [told.stage for told in plan.unplaced] == [Stage.QUEUE_MAX]


def test_a_closed_queue_is_not_charged_for_pods_of_others():
    posing = [pod(f"p{i}", 1, queue="victims", node="a") for i in range(4)]
    world = cluster(two_queues(), node("a", 8), posing, victims(4))
    assert len(placed(world.plan())) == 4
    snapshot = world.snapshot()
    assert not snapshot.queue_allocated.get("victims", {}).get("gpu")


def test_demand_for_a_closed_queue_gives_it_no_share():
    asking = [pod(f"p{i}", 1, queue="victims") for i in range(4)]
    world = cluster(two_queues(), node("a", 8), asking)
    plan = world.plan()
    assert not placed(plan)
    assert {told.stage for told in plan.unplaced} == {Stage.INVALID}
    assert not world.snapshot().queue_requested.get("victims", {}).get("gpu")


def test_a_rule_or_a_label_that_changes_counts_at_once():
    running = pod("r", 4, queue="q", node="a")
    world = cluster(queue("q", 4, 4), node("a", 8), running, pod("late", 1, queue="q"))
    assert world.plan().unplaced
    selecting = {"namespaces": {"selector": {"matchLabels": {"team": "ml"}}}}
    world.add(queue("q", 4, 4, **selecting))
    assert not world.snapshot().queue_allocated.get("q", {}).get("gpu")
    meta = ObjectMeta(name="default", uid="ns", labels={"team": "ml"})
    world.builder.apply("namespaces", None, PartialObjectMetadata(metadata=meta))
    assert world.snapshot().queue_allocated["q"]["gpu"] == 4
    assert world.plan().unplaced


PREEMPTIBILITY = "scheduling.kai.io/preemptibility"
MIN = "scheduling.kai.io/min-available"
GROUP = "scheduling.kai.io/pod-group"


def edited(each, *, labels=None, drop=(), **annotations):
    """``each`` after an edit of its metadata."""
    meta = each.metadata
    written = {k: v for k, v in meta.annotations.items() if k not in drop} | annotations
    return replace(each, metadata=replace(meta, annotations=written, labels=labels or meta.labels))


def started(world):
    """The pods of the cluster's next plan as they are once bound, with their records."""
    return {
        placement.pod.name: (placement.node, gang.terms(placement).text())
        for gang in world.plan().placements
        for placement in gang.pods
    }


def bound(each, where):
    node_name, record = where[each.metadata.name]
    on_node = replace(each, spec=replace(each.spec, node_name=node_name))
    return edited(on_node, **{ADMITTED_KEY: record})


def restarted(*objects):
    """Another process that sees these objects for the first time."""
    return cluster(*objects)


def both_ways(world, before, after):
    """The cluster after an edit: as seen by the process, and by one that starts only then."""
    world.add(before)
    world.snapshot()
    world.add(after)
    return world, restarted(*world.all())


def singles(count, name="r", **options):
    return [pod(f"{name}{i}", 1, queue="mine", **options) for i in range(count)]


def admitted(objects, pods):
    """A cluster in which ``pods`` have been started, and these pods as bound."""
    world = cluster(*objects, pods)
    where = started(world)
    assert set(where) == {each.metadata.name for each in pods}
    return world, [bound(each, where) for each in pods]


def test_relabelling_running_pods_moves_no_charge():
    objects = [queue("mine", 4, 4), queue("other", 4, 4), node("a", 16)]
    world, running = admitted(objects, singles(4))
    moved = [edited(each, **{QUEUE: "other"}) for each in running]
    for seen in both_ways(world, running, moved):
        seen.add(singles(4, "late"))
        allocated = seen.snapshot().queue_allocated
        assert allocated["mine"]["gpu"] == 4
        assert not allocated.get("other", {}).get("gpu")
        assert not placed(seen.plan())


def test_relabelling_to_a_closed_or_missing_queue_gains_nothing():
    objects = [*two_queues(), node("a", 16)]
    for target in ("victims", "nowhere"):
        world, running = admitted(objects, singles(4))
        moved = [edited(each, **{QUEUE: target}) for each in running]
        for seen in both_ways(world, running, moved):
            seen.add(singles(4, "late"))
            assert not placed(seen.plan())
            assert seen.snapshot().queue_allocated["mine"]["gpu"] == 4


def borrowed():
    """The tenant ``mine`` runs on all GPUs, of which ``owner`` deserves all but one."""
    objects = [queue("mine", 1), queue("owner", 7), node("a", 8)]
    return admitted(objects, singles(8))


def owed(world):
    """How many pods of the tenant are evicted for the owner of the capacity."""
    world.add([replace_queue(each, "owner") for each in singles(7, "due")])
    return len(world.plan().evictions)


def replace_queue(each, name):
    return edited(each, **{QUEUE: name})


def test_what_is_borrowed_cannot_be_kept_by_an_edit():
    higher = {"priority": 1_000_000}
    edits = [
        lambda each: edited(each, **{PREEMPTIBILITY: "non-preemptible"}),
        lambda each: edited(each, **{PREEMPTIBILITY: "semi-preemptible"}),
        lambda each: edited(each, **{QUEUE: "owner"}),
        lambda each: edited(each, **{GROUP: "g", MIN: "8"}),
        lambda each: replace(each, spec=replace(each.spec, **higher)),
    ]
    for edit in edits:
        world, running = borrowed()
        for seen in both_ways(world, running, [edit(each) for each in running]):
            assert owed(seen) == 7


def test_protection_can_be_given_up():
    objects = [queue("mine", 4), queue("owner", 4), node("a", 8)]
    fixed = [edited(each, **{PREEMPTIBILITY: "non-preemptible"}) for each in singles(4)]
    world, running = admitted(objects, fixed)
    assert read_terms(running[0].metadata.annotations).preemptibility == "non-preemptible"
    free = [edited(each, **{PREEMPTIBILITY: "preemptible"}) for each in running]
    for seen in both_ways(world, running, free):
        assert not seen.snapshot().queue_non_preemptible.get("mine", {}).get("gpu")


def test_a_raised_min_member_protects_nothing_more():
    objects = [queue("mine", 2), queue("owner", 6), node("a", 8)]
    gang = [edited(each, **{GROUP: "g", MIN: "2"}) for each in singles(8)]
    world, running = admitted(objects, gang)
    raised = [edited(each, **{MIN: "8"}) for each in running]
    for seen in both_ways(world, running, raised):
        seen.add([replace_queue(each, "owner") for each in singles(6, "due")])
        assert len(seen.plan().evictions) == 6
        lowered = [edited(each, **{MIN: "1"}) for each in running]
        tree = seen.add(lowered).snapshot().gangs["default/PodGroup/g"].tree
        assert tree.min_members == 1


def test_part_of_a_gpu_stays_what_it_was():
    objects = [queue("mine", 1, 1), node("a", 2)]
    world, running = admitted(objects, [shared(pod("half", 0, queue="mine"), "0.9")])
    edits = [
        edited(running[0], **{"gpu-fraction": "0.1"}),
        edited(running[0], drop=("gpu-fraction",)),
        edited(running[0], labels={"runai-gpu-group": "elsewhere"}),
    ]
    for after in edits:
        for seen in both_ways(world, running, after):
            seen.add(shared(pod("late", 0, queue="mine"), "0.5"))
            assert not placed(seen.plan())


@pytest.mark.parametrize(
    "share",
    [
        GpuShare(fraction=1e308),
        GpuShare(fraction=0.95, devices=2**40),
        GpuShare(memory=1e300),
        GpuShare(fraction=0.01),
        GpuShare(fraction=0.95, memory=1.0),
        None,
    ],
    ids=str,
)
def test_a_forged_share_of_a_gpu_is_no_less_than_the_annotation_says(share):
    forged = Terms(queue="mine", share=share, gpus={"g": 0} if share else {}).text()
    posing = shared(pod("half", 0, queue="mine", node="a"), "0.9", group="g")
    world = cluster(queue("mine", 1, 1), node("a", 2), edited(posing, **{ADMITTED_KEY: forged}))
    assert not placed(world.add(shared(pod("late", 0, queue="mine"), "0.5")).plan())


def test_a_label_of_a_group_on_whole_gpus_shares_nothing():
    objects = [queue("mine", 8), node("a", 8)]
    world, running = admitted(objects, singles(8))
    grouped = [edited(each, labels={"runai-gpu-group": "one"}) for each in running]
    for seen in both_ways(world, running, grouped):
        assert not placed(seen.add(singles(1, "late")).plan())


def test_a_promise_of_an_end_is_not_taken_back():
    runtime = "scheduling.kai.io/expected-runtime"
    short = [edited(each, **{runtime: "60s"}) for each in singles(1)]
    world, running = admitted([queue("mine", 8), node("a", 8)], short)
    later = [edited(running[0], **{runtime: "100h"}), edited(running[0], drop=(runtime,))]
    for after in later:
        for seen in both_ways(world, running, after):
            [gang] = seen.snapshot().gangs.values()
            assert gang.expected_runtime == 60


def test_a_forged_record_yields_no_more_than_the_objects_say():
    forged = Terms(
        queue="victims",
        priority=10**9,
        preemptibility=Preemptibility.NON_PREEMPTIBLE,
        minimums={"": 8},
    ).text()
    posing = [edited(each, **{ADMITTED_KEY: forged}) for each in singles(4, node="a")]
    seen = cluster(two_queues(), node("a", 16), posing, victims(4))
    assert len(placed(seen.plan())) == 4
    for gang in seen.snapshot().gangs.values():
        assert gang.preemptible
        assert gang.priority == 0
        assert gang.tree.min_pods() <= 4
    assert not seen.snapshot().queue_allocated.get("victims", {}).get("gpu")


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", '{"queue":1}', "{" * 20_000, '{"queue":"mine","floors":{"":1e400}}'],
)
def test_a_record_that_cannot_be_read_is_none(text):
    assert read_terms({ADMITTED_KEY: text}) is None
    [running] = [edited(each, **{ADMITTED_KEY: text}) for each in singles(1, node="a")]
    assert cluster(queue("mine", 4), node("a", 4), running).snapshot().queue_allocated["mine"]
