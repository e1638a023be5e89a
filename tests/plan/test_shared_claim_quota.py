"""Pods that share a claim cost their queue the claim, whichever of them starts first."""

import itertools

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import PodSchedulingGate
from kai_py.snapshot.accounting import GPU
from tests.support.scenario import (
    at,
    claim,
    claiming,
    cluster,
    device_class,
    gpu_slice,
    job,
    node,
    placed,
    pod,
    queue,
)

DEVICES = (node("n", 0), gpu_slice("n"), device_class())
ONE_STARTS_IT = {"scheduling.kai.io/min-available": "1"}


def sharing(owner, names, **options):
    return [
        claiming(pod(each, 0, owner=owner, **options), "held", template=False) for each in names
    ]


def used_up(maximum, *objects):
    """A queue that has two GPUs by now."""
    held = claim("c", 2, owner="runs", held_by=("runs",), on=(("n", "gpu-6"), ("n", "gpu-7")))
    runs = claiming(pod("runs", 0, queue="team", node="n"), "c")
    return cluster(*DEVICES, queue("team", 1, maximum), held, runs, *objects)


@pytest.mark.parametrize("names", list(itertools.permutations(("a", "b", "c"))))
@pytest.mark.parametrize("maximum", [3, 4])
def test_a_claim_counts_whichever_pod_of_the_gang_came_first(names, maximum):
    owner = job("j", 3, queue="team", **ONE_STARTS_IT)
    world = used_up(maximum, claim("held", 2), owner, *sharing(owner, names))
    started = placed(world.plan())
    assert len(started) == (3 if maximum == 4 else 0)


@pytest.mark.slow
@pytest.mark.parametrize("names", list(itertools.permutations(("a", "b", "c"))))
@pytest.mark.parametrize(("maximum", "starts"), [(3, False), (4, True)])
def test_pods_that_start_together_pay_for_their_claim_once(names, maximum, starts):
    owner = job("j", 3, queue="team")
    world = used_up(maximum, claim("held", 2), owner, *sharing(owner, names))
    assert len(placed(world.plan())) == (3 if starts else 0)


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("how", ["gated", "waits"])
def test_a_pod_that_cannot_start_does_not_pay_for_one_that_can(names, how):
    owner = job("j", 2, queue="team", **ONE_STARTS_IT)
    first, second = sharing(owner, names)
    if how == "gated":
        gates = (PodSchedulingGate(name="example.com/gate"),)
        first = replace(first, spec=replace(first.spec, scheduling_gates=gates))
    else:
        first = claiming(first, "never")
        first = replace(
            first,
            spec=replace(
                first.spec,
                resource_claims=(*second.spec.resource_claims, *first.spec.resource_claims),
            ),
        )
    world = used_up(3, claim("held", 2), owner, first, second)
    assert placed(world.plan()) == {}


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_claim_counts_in_the_queue_of_whichever_gang_starts(names):
    """Of two pods without an owner, each a gang, in two queues."""
    first, second = (claiming(pod(each, 0, queue=each), "held", template=False) for each in names)
    queues = [queue("a", 1, 1), queue("b", 1, 1)]
    world = cluster(*DEVICES, *queues, claim("held", 2), first, second)
    assert placed(world.plan()) == {}
    roomy = cluster(*DEVICES, queue("a", 1, 1), queue("b", 2, 2), claim("held", 2), first, second)
    assert placed(roomy.plan())["b"] == "n"


def beside(*, maximum, deserved=0, joined=(), preemptible=True, second="pays"):
    """A claim of 8 GPUs that queue ``pays`` is charged with, and a pod of ``joins`` for it."""
    on = [("n", f"gpu-{number}") for number in range(8)]
    holders = ("runs", *joined)
    held = claim("held", 8, held_by=holders, on=on)
    runs = claiming(pod("runs", 0, queue=second, node="n"), "held", template=False)
    rest = [claiming(pod(n, 0, queue="joins", node="n"), "held", template=False) for n in joined]
    late = claiming(pod("late", 0, queue="joins"), "held", template=False)
    if not preemptible:
        notes = late.metadata.annotations | {"scheduling.kai.io/preemptibility": "non-preemptible"}
        late = replace(late, metadata=replace(late.metadata, annotations=notes))
    queues = [queue("pays", 8, 8), queue("joins", deserved, maximum)]
    return cluster(*DEVICES, *queues, held, runs, *rest, late)


@pytest.mark.parametrize(("maximum", "starts"), [(0, False), (7, False), (8, True)])
def test_a_queue_joins_no_claim_that_it_could_not_pay_for(maximum, starts):
    """Once the pods that pay for it have ended, this queue would be above its maximum."""
    assert bool(placed(beside(maximum=maximum).plan())) is starts


@pytest.mark.parametrize(("deserved", "starts"), [(0, False), (8, True)])
def test_a_claim_that_is_joined_is_not_kept_from_others(deserved, starts):
    world = beside(maximum=8, deserved=deserved, preemptible=False)
    assert bool(placed(world.plan())) is starts


def test_a_queue_joins_its_own_claims_freely():
    world = beside(maximum=8, second="joins")
    assert placed(world.plan()) == {"late": "n"}


def test_claims_that_were_joined_count_together():
    world = beside(maximum=8, joined=("early",))
    assert placed(world.plan()) == {"late": "n"}, "of one claim any number of pods"
    other = [("m", f"gpu-{number}") for number in range(2)]
    more = claim("more", 2, held_by=("pays-too",), on=other)
    pays = claiming(pod("pays-too", 0, queue="pays", node="m"), "more", template=False)
    last = claiming(pod("last", 0, queue="joins"), "more", template=False)
    world.remove(pod("late", 0, queue="joins"))
    world.add(node("m", 0), gpu_slice("m"), more, pays, last)
    assert placed(world.plan()) == {}
    world.add(queue("joins", 0, 10))
    assert placed(world.plan()) == {"last": "m"}


def with_joined(maximum, *, parent=None, deserved=0, **options):
    """A claim of 8 GPUs that ``pays`` is charged with and ``joins`` has joined, and a free node."""
    world = beside(maximum=maximum, joined=("early",))
    world.remove(pod("late", 0, queue="joins"))
    above = {"parent": "above"} if parent is not None else {}
    if parent is not None:
        world.add(queue("above", 8, parent), queue("pays", 8, 8, **above))
    world.add(queue("joins", deserved, maximum, **above), node("plain", 4))
    return world.add(pod("own", 1, queue="joins", **options))


@pytest.mark.parametrize(("maximum", "starts"), [(8, False), (9, True)])
def test_pods_that_start_later_leave_capacity_for_what_was_joined(maximum, starts):
    """The joined claim falls to the queue, whose own pods have no part of it."""
    world = with_joined(maximum)
    plan = world.plan()
    assert bool(placed(plan)) is starts
    shares = {each.queue: each for each in plan.queues}
    assert shares["joins"].allocated[GPU] == (1 if starts else 0), "what is joined counts once"
    if not starts:
        [pending] = plan.unplaced
        assert "currently 8 GPUs allocated" in pending.message
        assert "(of those allocated, 8 GPUs in claims charged to other queues)" in pending.message


@pytest.mark.parametrize(("parent", "starts"), [(8, False), (9, True)])
def test_what_a_queue_above_both_counts_already_is_not_counted_twice(parent, starts):
    assert bool(placed(with_joined(9, parent=parent).plan())) is starts


def test_a_queue_joins_a_claim_that_the_queue_above_is_charged_with():
    world = beside(maximum=8)
    world.add(queue("above", 8, 8), queue("pays", 8, 8, parent="above"))
    assert placed(world.add(queue("joins", 0, 8, parent="above")).plan()) == {"late": "n"}


@pytest.mark.parametrize(("deserved", "starts"), [(7, False), (8, True)])
def test_what_may_not_be_preempted_joins_claims_of_its_own_queue_if_it_deserves_them(
    deserved, starts
):
    """The pod that is charged may be preempted, this one keeps the claim."""
    world = beside(maximum=8, deserved=deserved, preemptible=False, second="joins")
    assert bool(placed(world.plan())) is starts


@pytest.mark.parametrize("ends", ["Succeeded", "deleted", "reservation only"])
@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_claim_costs_one_of_the_pods_that_are_left(names, ends):
    """Kubernetes removes a pod that has ended from ``reservedFor`` when it gets to that."""
    on = (("n", "gpu-6"), ("n", "gpu-7"))
    runs = {each.metadata.name: each for each in sharing(None, names, queue="team", node="n")}
    held = claim("held", 2, held_by=("a", "b"), on=on)
    world = cluster(*DEVICES, queue("team", 8), held, *(runs[name] for name in names))
    assert world.snapshot().queue_allocated["team"][GPU] == 2
    if ends == "Succeeded":
        world.add(replace(runs["a"], status=replace(runs["a"].status, phase=ends)))
    elif ends == "deleted":
        world.remove(runs["a"])
    else:
        world.add(claim("held", 2, held_by=("b",), on=on))
    assert world.snapshot().queue_allocated["team"][GPU] == 2
    ended = replace(runs["a"], status=replace(runs["a"].status, phase="Succeeded"))
    after_restart = cluster(*DEVICES, queue("team", 8), held, ended, runs["b"])
    assert after_restart.snapshot().queue_allocated["team"][GPU] == 2


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("how", ["gated", "deleted"])
def test_a_claim_is_requested_if_any_of_its_pods_requests_something(names, how):
    first, second = sharing(None, names, queue="team")
    world = cluster(*DEVICES, queue("team", 8), claim("held", 2), first, second)
    spec, meta = first.spec, first.metadata
    if how == "gated":
        gates = (PodSchedulingGate(name="example.com/gate"),)
        idle = replace(first, spec=replace(spec, scheduling_gates=gates))
        world = cluster(*DEVICES, queue("team", 8), claim("held", 2), idle, second)
    else:
        world.add(
            replace(first, metadata=replace(meta, deletion_timestamp=at(0), finalizers=("x",)))
        )
    assert world.snapshot().queue_requested["team"][GPU] == 2
