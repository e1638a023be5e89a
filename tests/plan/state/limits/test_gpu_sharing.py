"""Parts of GPUs through the whole cycle: what users write, what is decided and said."""

import pytest
from msgspec.structs import replace

from kai_py.api.choices import FillStrategy
from kai_py.api.gpu_reservation import MANAGED_BY, MANAGER, VISIBLE_GPUS
from kai_py.commit.dependencies import assumed_binding
from kai_py.grouping.admitted import ADMITTED_KEY
from kai_py.plan.plan import Stage
from tests.support.scenario import at, cluster, job_with_pods, node, placed, pod, queue, shared

MEMORY = {"nvidia.com/gpu.memory": "40960"}


def groups(plan):
    return {p.pod.name: [g.group for g in p.gpus] for gang in plan.placements for p in gang.pods}


def halves(count, **options):
    return [shared(pod(f"h{i}", 0, queue="q", **options), "0.5") for i in range(count)]


def test_parts_share_a_gpu_before_they_take_another():
    plan = cluster(queue("q", 8), node("a", 2), halves(3)).plan()
    assert groups(plan) == {"h0": ["pod-h0"], "h1": ["pod-h0"], "h2": ["pod-h2"]}


def test_a_shared_gpu_is_no_whole_gpu_any_more():
    world = cluster(queue("q", 8), node("a", 2), halves(1), pod("whole", 2, queue="q"))
    plan = world.plan()
    assert placed(plan) == {"whole": "a"} or placed(plan) == {"h0": "a"}
    assert len(plan.unplaced) == 1


def test_running_pods_keep_the_gpu_of_their_label():
    running = shared(pod("r", 0, queue="q", node="b"), "0.6", group="g7", index="3")
    world = cluster(queue("q", 8), node("a", 8), node("b", 8), running, halves(1))
    assert groups(world.plan()) == {"h0": ["pod-h0"]}
    small = shared(pod("s", 0, queue="q"), "0.4")
    plan = world.add(small).plan()
    assert groups(plan)["s"] in (["g7"], ["pod-h0"])
    snapshot = world.snapshot()
    assert snapshot.gpu_sharing.index.tolist() == [3]
    row = snapshot.nodes.positions["b"]
    assert snapshot.used[snapshot.resources.positions["nvidia.com/gpu"], row] == 1


def test_what_is_being_bound_counts_already():
    world = cluster(queue("q", 8), node("a", 1), halves(2))
    plan = world.plan()
    for gang in plan.placements:
        for each in gang.pods:
            world.builder.assume(assumed_binding(each))
    late = shared(pod("late", 0, queue="q"), "0.1")
    plan = world.add(late).plan()
    assert not plan.placements
    [told] = plan.unplaced
    assert told.stage is Stage.RESOURCES
    assert "1 Insufficient GPU fraction (0.1 of its memory requested)" in told.message
    for uid in ("pod-h0", "pod-h1"):
        world.builder.forget(uid)
    assert placed(world.plan()) == {"h0": "a", "h1": "a"} or "late" in placed(world.plan())


def test_a_gpu_that_is_smaller_than_the_part_is_told():
    labels = {"nvidia.com/gpu.memory": "81920"}
    large = shared(pod("large", 0, queue="q"), gpu_memory="90000")
    [told] = cluster(queue("q", 8), node("a", 1, labels=labels), large).plan().unplaced
    assert "1 Insufficient GPU memory (90000 MiB requested, a GPU has at most 81900 MiB)" in (
        told.message
    )


def test_a_leaving_part_is_capacity_for_later():
    leaving = shared(pod("old", 0, queue="q", node="a", leaving=True), "0.9", group="g")
    world = cluster(queue("q", 8), node("a", 1), leaving, pod("whole", 1, queue="q"))
    plan = world.plan()
    assert [n.pod.name for n in plan.nominations] == ["whole"]
    stays = shared(pod("stay", 0, queue="q", node="a"), "0.1", group="g")
    assert not world.add(stays).plan().nominations


RESERVATION = "kai-resource-reservation"


def keeper(namespace: str = RESERVATION, app: str = RESERVATION):
    """A pod with a whole GPU that names group ``g``."""
    labels = {"runai-gpu-group": "g", "app": app}
    found = pod("gpu-reservation", 1, node="a", scheduler_name="other", labels=labels)
    return replace(found, metadata=replace(found.metadata, namespace=namespace))


def test_a_reservation_pod_of_kai_and_its_group_are_one_gpu():
    part = shared(pod("r", 0, queue="q", node="a"), "0.5", group="g")
    world = cluster(queue("q", 8), node("a", 2), keeper(), part, pod("whole", 1, queue="q"))
    assert placed(world.plan()) == {"whole": "a"}


def test_only_a_reservation_pod_keeps_its_gpu_open_for_others():
    late = shared(pod("late", 0, queue="q"), "0.5")
    group = shared(pod("late", 0, queue="q"), "0.5", group="g")
    for waiting in (late, group):
        opened = cluster(queue("q", 8), node("a", 1), keeper(), waiting).plan()
        assert placed(opened) == {"late": "a"}
        for poser in (keeper("default"), keeper(app="train"), keeper("default", app="train")):
            assert not placed(cluster(queue("q", 8), node("a", 1), poser, waiting).plan())


def own_keeper(*, leaving: bool = False):
    """A reservation pod of ours for group ``g``."""
    found = keeper()
    labels = {**found.metadata.labels, MANAGED_BY: MANAGER}
    gone = at(900.0) if leaving else None
    meta = replace(found.metadata, labels=labels, deletion_timestamp=gone)
    return replace(found, metadata=meta)


def given(name: str = "r", gpus: str = "GPU-1"):
    """A running pod of group ``g`` that was given the GPU of its reservation pod."""
    part = shared(pod(name, 0, queue="q", node="a"), "0.5", group="g")
    notes = {**part.metadata.annotations, VISIBLE_GPUS: gpus, ADMITTED_KEY: '{"queue":"q"}'}
    return replace(part, metadata=replace(part.metadata, annotations=notes))


def test_a_gpu_whose_reservation_is_not_needed_is_about_to_be_whole():
    late = shared(pod("late", 0, queue="q"), "0.5")
    for waiting in (late, pod("whole", 1, queue="q")):
        world = cluster(queue("q", 8), node("a", 1), own_keeper(), waiting)
        assert not placed(world.plan())
        # Capacity is on its way: it is waited for, and nothing is evicted.
        [nominated] = world.plan().nominations
        assert nominated.node == "a"


@pytest.mark.parametrize("reservation", [(), (own_keeper(leaving=True),)])
def test_a_node_with_a_gpu_that_is_not_reserved_any_more_gives_out_none(reservation):
    world = cluster(queue("q", 8), node("a", 4), given(), *reservation)
    late = shared(pod("late", 0, queue="q"), "0.5")
    world.add(pod("whole", 1, queue="q"), late)
    assert placed(world.plan()) == {}
    kept = cluster(queue("q", 8), node("a", 4), given(), own_keeper())
    kept.add(pod("whole", 1, queue="q"), late)
    assert set(placed(kept.plan())) == {"whole", "late"}


def test_whole_gpus_in_one_group_are_as_many_gpus():
    group = {"runai-gpu-group": "one"}
    running = [pod(f"r{i}", 1, queue="q", node="a", labels=group) for i in range(4)]
    world = cluster(queue("q", 8), node("a", 4), running, pod("late", 1, queue="q"))
    assert not placed(world.plan())


def test_a_part_without_a_group_keeps_a_gpu_to_itself():
    part = shared(pod("r", 0, queue="q", node="a"), "0.5")
    plan = cluster(queue("q", 8), node("a", 1), part, halves(1)).plan()
    assert groups(plan) == {"h0": ["pod-r-0"]}
    whole = cluster(queue("q", 8), node("a", 1), part, pod("whole", 1, queue="q")).plan()
    assert not whole.placements


def test_a_bad_annotation_stops_only_its_own_pod():
    bad = shared(pod("bad", 0, queue="q"), "2")
    plan = cluster(queue("q", 8), node("a", 2), bad, halves(1)).plan()
    assert placed(plan) == {"h0": "a"}
    [told] = plan.unplaced
    assert told.stage is Stage.INVALID
    assert told.message.startswith('pod default/bad: annotation gpu-fraction: "2" must be')


def test_memory_is_a_part_of_the_node_s_own_gpus_and_is_charged_so():
    small = {"nvidia.com/gpu.memory": "20480"}
    half = shared(pod("half", 0, queue="q"), gpu_memory="20400")
    world = cluster(queue("q", 0, 0.5), node("a", 1, labels=MEMORY), half)
    assert placed(world.plan()) == {"half": "a"}
    world = cluster(queue("q", 0, 0.5), node("a", 1, labels=small), half)
    [told] = world.plan().unplaced
    assert told.stage is Stage.QUEUE_MAX
    unlabelled = cluster(queue("q", 8), node("a", 1), half).plan()
    assert "label nvidia.com/gpu.memory is missing" in unlabelled.unplaced[0].message


def test_the_charge_follows_the_label_of_the_node():
    half = shared(pod("half", 0, queue="q", node="a"), group="g", gpu_memory="20400")
    world = cluster(queue("q", 8), half)
    world.snapshot()
    usage = world.add(node("a", 1, labels=MEMORY)).snapshot().queue_allocated["q"]
    assert usage["gpu"] == 20400 / 40900


def test_fractions_count_against_limits():
    plan = cluster(queue("q", 0, 1.2), node("a", 4), halves(3)).plan()
    assert len(placed(plan)) == 2
    assert plan.unplaced[0].stage is Stage.QUEUE_MAX


def test_several_parts_are_on_distinct_gpus():
    two = shared(pod("two", 0, queue="q"), "0.5", gpu_fraction_num_devices="2")
    plan = cluster(queue("q", 8), node("a", 1), node("b", 2), two, halves(1)).plan()
    assert placed(plan)["two"] == "b"
    assert len(set(groups(plan)["two"])) == 2


def test_a_gang_of_parts_starts_whole_or_not():
    owner, *pods = job_with_pods("j", 5, 0, queue="q")
    gang = [owner, *(shared(each, "0.5") for each in pods)]
    assert not cluster(queue("q", 8), node("a", 2), gang).plan().placements
    assert len(placed(cluster(queue("q", 8), node("a", 3), gang).plan())) == 5


def test_spreading_takes_another_gpu_of_the_node():
    world = cluster(queue("q", 8), node("a", 2), halves(2), sharing_strategy=FillStrategy.SPREAD)
    assert groups(world.plan()) == {"h0": ["pod-h0"], "h1": ["pod-h1"]}


def test_memory_goes_to_larger_gpus_where_it_would_be_too_much_of_a_small_one():
    """30 GiB are 3/4 of one GPU and 3/8 of the other; the queue may hold half a GPU."""
    large = {"nvidia.com/gpu.memory": "81920"}
    wanted = [shared(pod(f"p{i}", 0, queue="q", created=i), gpu_memory="30720") for i in range(2)]
    nodes = [node("a", 8, labels=MEMORY), node("b", 8, labels=large)]
    plan = cluster(queue("q", maximum=0.5), nodes, wanted).plan()
    assert placed(plan) == {"p0": "b"}
    assert [each.stage for each in plan.unplaced] == [Stage.QUEUE_MAX]


def test_whole_gpus_are_reclaimed_from_parts():
    runs = [
        shared(pod(f"r{i}", 0, queue="rich", node="a", created=-9), "0.5", group="g")
        for i in range(2)
    ]
    world = cluster(queue("rich", 0), queue("poor", 1), node("a", 1), runs)
    plan = world.add(pod("w", 1, queue="poor")).plan()
    assert sorted(e.pod.name for e in plan.evictions) == ["r0", "r1"]
    assert [n.pod.name for n in plan.nominations] == ["w"]


def test_legacy_mig_pods_close_the_mig_devices_of_their_node():
    legacy = pod("old", 0, queue="q", node="a", annotations={"nvidia.com/mig-1g.5gb": "1"})
    wanted = pod("new", 0, queue="q", requests={"nvidia.com/mig-1g.5gb": "1"})
    there = node("a", 0)
    there.status.allocatable["nvidia.com/mig-1g.5gb"] = "7"
    assert not cluster(queue("q", 8), there, legacy, wanted).plan().placements
    assert placed(cluster(queue("q", 8), there, wanted).plan()) == {"new": "a"}


def labelled(name: str, gpus: int = 4, *, mig: str = "", **labels: str):
    keys = {f"nvidia.com/{key.replace('_', '.')}": value for key, value in labels.items()}
    there = node(name, gpus, labels=keys)
    if mig:
        there.status.allocatable["nvidia.com/mig-1g.5gb"] = mig
    return there


def slices(name: str = "mig"):
    return pod(name, 0, queue="q", requests={"nvidia.com/mig-1g.5gb": "1"})


SINGLE = {"mig_strategy": "single"}
MIXED = {"mig_strategy": "mixed"}


@pytest.mark.parametrize(
    ("there", "takes"),
    [
        (labelled("a", **SINGLE), "whole cpu"),
        (labelled("a", gpu_product="A100-SXM4-40GB-MIG-1g.5gb", **SINGLE), "whole cpu"),
        (labelled("a", gpu_product="A100-SXM4-40GB", **SINGLE), "whole part cpu"),
        (labelled("a", mig_config="all-disabled", **SINGLE), "whole part cpu"),
        (labelled("a", mig="7", **MIXED), "mig cpu"),
        (labelled("a", mig="0", **MIXED), "whole part cpu"),
        (labelled("a", mig="7"), "whole part mig cpu"),
        (labelled("a", gpu_replicas="4"), "whole cpu"),
        (labelled("a", gpu_replicas="1"), "whole part cpu"),
        (labelled("a", gpu_product="Tesla-T4-SHARED"), "whole cpu"),
    ],
)
def test_the_strategy_of_a_node_decides_which_pods_it_takes(there, takes):
    pods = {
        "whole": pod("whole", 1, queue="q"),
        "part": shared(pod("part", 0, queue="q"), "0.5"),
        "mig": slices(),
        "cpu": pod("cpu", 0, queue="q"),
    }
    for name, wanted in pods.items():
        plan = cluster(queue("q", 8), there, wanted).plan()
        assert bool(placed(plan)) is (name in takes.split()), name


def test_a_node_that_gives_no_parts_says_so():
    part = shared(pod("part", 0, queue="q"), "0.5")
    [unplaced] = cluster(queue("q", 8), labelled("a", **SINGLE), part).plan().unplaced
    assert "1 had MIG devices as whole GPUs" in unplaced.message


def test_a_mig_profile_that_is_only_annotated_is_to_be_requested():
    notes = {"nvidia.com/mig-1g.5gb": "2"}
    world = cluster(queue("q", 8), labelled("a", mig="7", **MIXED))
    [unplaced] = world.add(pod("waits", 0, queue="q", annotations=notes)).plan().unplaced
    assert "request nvidia.com/mig-1g.5gb in resources.limits" in unplaced.message
    world.add(pod("runs", 0, queue="q", node="a", annotations=notes))
    assert world.snapshot().queue_allocated["q"]["gpu"] == pytest.approx(2 / 7)


def test_replicas_are_the_parts_of_gpus_that_they_are():
    world = cluster(queue("q", 8), labelled("a", 8, gpu_replicas="4"))
    world.add(pod("runs", 2, queue="q", node="a"))
    assert world.snapshot().queue_allocated["q"]["gpu"] == pytest.approx(0.5)
    world.add(job_with_pods("waits", 8, queue="q"))
    [share] = world.plan().queues
    assert share.fair_share["gpu"] == pytest.approx(2.0)
    world.remove(labelled("a", 8, gpu_replicas="4"))
    world.add(labelled("a", 8))
    assert world.snapshot().queue_allocated["q"]["gpu"] == pytest.approx(2.0)
