"""Gangs that do not get ready in time: evicted whole, tried again, named with the cause."""

import pytest

from kai_py.api.records.core import (
    Condition,
    ContainerState,
    ContainerStatus,
    ContainerTerminated,
    ContainerWaiting,
    PodStatus,
)
from kai_py.observe import kept_history
from kai_py.observe.explanation import Explainer
from kai_py.observe.gang_rows import gang_rows
from kai_py.observe.kept_history import packed_startups, unpacked_startups
from kai_py.plan.plan import Stage
from kai_py.plan.search_cache.inputs import InputsChange
from kai_py.plan.session.startups import (
    Blame,
    FailedStart,
    ReadyRule,
    StartupRecord,
    Startups,
    ready_rules,
)
from kai_py.snapshot.tables.readiness import startup_problem
from tests.support.records import replace
from tests.support.scenario import START, at, cluster, evicted, job, node, placed, pod, queue

PULL = ContainerState(waiting=ContainerWaiting("ImagePullBackOff", "no such image"))
CRASH = ContainerState(waiting=ContainerWaiting("CrashLoopBackOff"))
CRASHED = ContainerState(terminated=ContainerTerminated("Error", 3))


def starting(one, state=PULL, changed=0.0, **container):
    """The pod as a kubelet reports one that is not ready."""
    status = ContainerStatus(name="main", state=state, **container)
    ready = Condition(type="Ready", status="False", last_transition_time=at(changed))
    return replace(
        one,
        status=PodStatus(
            phase="Pending",
            conditions=(ready,),
            container_statuses=(status,),
            start_time=one.metadata.creation_timestamp,
        ),
    )


def ready(one, changed=0.0):
    status = ContainerStatus(name="main", ready=True, started=True)
    condition = Condition(type="Ready", status="True", last_transition_time=at(changed))
    return replace(
        one,
        status=PodStatus(phase="Running", conditions=(condition,), container_statuses=(status,)),
    )


def gang(name, nodes, created=0.0, queue="q", **annotations):
    """A Job and a pod of it on each of the nodes; "" for pods that wait."""
    owner = job(name, len(nodes), queue, **annotations)
    return owner, [
        pod(f"{name}-{number}", 1, owner=owner, node=on, created=created)
        for number, on in enumerate(nodes)
    ]


TIMEOUT = {"readyTimeout": "5m"}
KEY = "default/Job/train"


def world(*, spec=None, state=PULL, **annotations):
    owner, pods = gang("train", ["a", "b"], **annotations)
    limit = TIMEOUT if spec is None else spec
    made = cluster(node("a", 4), node("b", 4), queue("q", 8, **limit), owner)
    return made.add(ready(pods[0]), starting(pods[1], state)), owner, pods


@pytest.mark.parametrize("min_available", ["1", "2"])
def test_a_gang_whose_min_member_is_ready_is_left_alone(min_available):
    made, _, _ = world(**{"scheduling.kai.io/min-available": min_available})
    made.plan(10)
    plan = made.plan(310)
    assert sorted(evicted(plan)) == ([] if min_available == "1" else ["train-0", "train-1"])
    assert min_available == "2" or plan.starting == ()


def test_a_gang_that_is_not_ready_in_time_is_evicted_whole():
    made, _, _ = world()
    plan = made.plan(10)
    assert evicted(plan) == []
    [noted] = plan.starting
    assert noted.gang == KEY
    assert "1 of 2 pods is not ready: the image of container main cannot be pulled" in (
        noted.message
    )
    assert made.memory.wake_at == pytest.approx(1_800_000_000.0 + 310)
    assert evicted(made.plan(309)) == []
    plan = made.plan(310)
    assert sorted(evicted(plan)) == ["train-0", "train-1"]
    assert "was not ready within 300 s" in plan.evictions[0].reason
    assert "ImagePullBackOff: no such image" in plan.evictions[0].reason


def test_without_a_timeout_the_state_is_only_shown():
    made, _, _ = world(spec={})
    made.plan(10)
    plan = made.plan(100_000)
    assert evicted(plan) == []
    snapshot = made.snapshot(100_000)
    [row] = [row for row in gang_rows(snapshot, plan) if row.gang == KEY]
    assert row.state == "NotReady"
    assert "pod train-1 on node b" in row.message
    found = Explainer(snapshot, plan).explain(KEY)
    assert (found.state, found.message) == (row.state, row.message)
    assert made.memory.wake_at is None


def recreated(made, pods, now):
    """The workload's controller has made the pods again, and they wait."""
    for one in pods:
        made.remove(one)
    owner = job("train", 2, "q")
    again = [pod(f"{one.metadata.name}-{now}", 1, owner=owner, created=now) for one in pods]
    made.add(again)
    return again


def bound(made, pods, nodes):
    placed_pods = [
        starting(replace(one, spec=replace(one.spec, node_name=on)))
        for one, on in zip(pods, nodes, strict=True)
    ]
    made.add(placed_pods)
    return placed_pods


def test_it_is_tried_again_with_backoff_and_a_bound():
    made, _, pods = world(spec={**TIMEOUT, "readyAttempts": 2})
    made.plan(0)
    assert len(evicted(made.plan(300))) == 2
    waiting = recreated(made, pods, 300)
    plan = made.plan(301)
    assert not plan.placements
    [unplaced] = plan.unplaced
    assert unplaced.stage is Stage.NOT_READY
    assert "started once" in unplaced.message
    assert "cannot be pulled" in unplaced.message
    assert made.memory.wake_at == pytest.approx(1_800_000_000.0 + 360)
    assert len(placed(made.plan(361))) == 2
    running = bound(made, waiting, ["a", "b"])
    made.plan(400)
    assert len(evicted(made.plan(700))) == 2
    recreated(made, running, 700)
    plan = made.plan(100_000)
    assert not plan.placements
    assert "started 2 times" in plan.unplaced[0].message
    assert "stays pending until it is created again" in plan.unplaced[0].message


def test_another_object_of_that_name_has_its_tries_again():
    made, owner, pods = world(spec={**TIMEOUT, "readyAttempts": 1})
    made.plan(0)
    made.plan(300)
    for one in pods:
        made.remove(one)
    made.remove(owner)
    other = replace(owner, metadata=replace(owner.metadata, uid="other"))
    again = [
        replace(
            one,
            metadata=replace(
                one.metadata,
                uid=f"{one.metadata.uid}-again",
                owner_references=tuple(
                    replace(each, uid="other") for each in one.metadata.owner_references
                ),
            ),
            spec=replace(one.spec, node_name=""),
        )
        for one in pods
    ]
    made.add(other, again)
    assert len(placed(made.plan(301))) == 2


def test_what_gets_ready_is_not_evicted_and_has_its_time_again():
    made, _, pods = world()
    made.plan(0)
    made.add(ready(pods[1], 200.0))
    made.plan(250)
    made.plan(320)
    assert made.memory.startups.since == {}
    # It lost readiness long after its start: that is no matter of the start.
    made.add(starting(pods[1], ContainerState(), changed=5000.0, started=True))
    made.plan(5000)
    assert evicted(made.plan(9000)) == []


def test_moments_of_readiness_between_crashes_do_not_count():
    made, _, pods = world()
    crashing = {"restart_count": 1, "last_state": CRASHED}
    made.plan(0)
    for moment in range(20, 300, 40):
        made.add(ready(pods[1], moment))
        made.plan(moment)
        made.add(starting(pods[1], CRASH, changed=moment + 10, **crashing))
        made.plan(moment + 10)
    plan = made.plan(301)
    assert len(evicted(plan)) == 2
    assert "container main has crashed (exit code 3)" in plan.evictions[0].reason


@pytest.mark.parametrize(
    ("queued", "own", "deadline"),
    [("5m", "1m", 60), ("5m", "1h", 300), (None, "2m", 120), ("5m", "0s", 300)],
)
def test_a_workload_can_only_shorten_the_time(queued, own, deadline):
    spec = {"readyTimeout": queued} if queued else {}
    made, _, _ = world(spec=spec, **{"scheduling.kai.io/ready-timeout": own})
    made.plan(0)
    assert evicted(made.plan(deadline - 1)) == []
    assert len(evicted(made.plan(deadline))) == 2


def test_a_start_that_goes_well_so_far_is_no_matter_for_people():
    made, _, _ = world(state=ContainerState(waiting=ContainerWaiting("ContainerCreating")))
    assert made.plan(0).starting == ()
    assert made.plan(299).starting == ()
    plan = made.plan(300)
    assert len(evicted(plan)) == 2
    assert "no reason is known yet" in plan.evictions[0].reason


def test_queues_inherit_it():
    owner, pods = gang("train", ["a", "b"])
    made = cluster(node("a", 4), node("b", 4), queue("top", 8, readyTimeout="1m"))
    made.add(queue("q", 8, parent="top"), owner, starting(pods[0]), starting(pods[1]))
    made.plan(0)
    assert len(evicted(made.plan(60))) == 2


def test_pods_that_nothing_creates_again_stay():
    made = cluster(node("a", 4), queue("q", 8, **TIMEOUT))
    made.add(starting(pod("alone", 1, queue="q", node="a")))
    made.plan(0)
    plan = made.plan(1000)
    assert evicted(plan) == []
    assert "its pods would not be created again" in plan.starting[0].message


def test_pods_without_a_condition_that_run_are_ready():
    made = cluster(node("a", 4), queue("q", 8, **TIMEOUT))
    made.add(pod("p", 1, queue="q", node="a"))
    assert made.snapshot(0).starting == {}


def failing(name, queue, namespace, bad):
    """A gang of two of which the pod on node ``bad`` does not get ready."""
    owner, pods = gang(name, ["good", bad], queue=queue)
    moved = [
        replace(each, metadata=replace(each.metadata, namespace=namespace))
        for each in (owner, *pods)
    ]
    return [moved[0], ready(moved[1]), starting(moved[2])]


@pytest.mark.parametrize(
    ("second", "avoided"),
    [(("r", "other"), True), (("q", "other"), False), (("r", "default"), False)],
)
def test_only_failures_of_several_tenants_make_a_node_avoided(second, avoided):
    made = cluster(*(node(name, 8) for name in ("good", "bad", "free")))
    made.add(queue("q", 8, **TIMEOUT), queue("r", 8, **TIMEOUT))
    made.add(failing("one", "q", "default", "bad"), failing("two", *second, "bad"))
    made.plan(0)
    assert len(evicted(made.plan(300))) == 4
    found = made.memory.startups.avoided()
    assert bool(found) == avoided
    if avoided:
        assert "2 gangs of 2 queues did not get ready on it" in found["bad"].signal
        waiting = pod("next", 1, queue="q", created=400.0)
        plan = made.add(waiting).plan(400)
        assert [each.node for each in plan.avoided_nodes] == ["bad"]
        # Packing alone would choose by name.
        assert placed(plan)["next"] != "bad"
        made.plan(300 + 1801)
        assert made.memory.startups.avoided() == {}


@pytest.mark.parametrize("namespace", ["default", "other"])
def test_while_a_node_is_avoided_answers_hold_as_long_as_nothing_changes(namespace):
    made = cluster(*(node(name, 8) for name in ("good", "bad", "free")))
    made.add(queue("q", 8, **TIMEOUT), queue("r", 8, **TIMEOUT))
    made.add(failing("one", "q", "default", "bad"), failing("two", "r", namespace, "bad"))
    for now in (0, 300, 400, 401):
        made.plan(now)
    assert bool(made.memory.startups.avoided()) == (namespace == "other")
    assert made.memory.search_inputs.change is InputsChange.UNCHANGED


def test_devices_are_avoided_by_the_same_rule():
    device, node_name = ("gpu.example.com", "bad", "gpu-3"), "bad"
    owner, pods = gang("one", ["good", "bad"])
    made = cluster(node("good"), node("bad"), queue("q", 8, **TIMEOUT), owner, pods)
    first = made.snapshot(0).gangs["default/Job/one"]
    other = replace(
        first,
        key="other/Job/two",
        queue="r",
        owner=replace(first.owner, namespace="other"),
    )

    def failed(one):
        return FailedStart(one, ReadyRule(300.0), "it crashes", (), ((device, node_name),))

    startups = Startups()
    assert startups.record([failed(first)], 0.0) == ()
    [avoided] = startups.record([failed(other)], 10.0)
    assert (avoided.key, avoided.node) == (device, node_name)
    assert avoided.message == "2 gangs of 2 queues did not get ready with it"


def test_the_next_leader_goes_on_with_what_was_known(monkeypatch):
    made, _, pods = world(spec={**TIMEOUT, "readyAttempts": 1})
    made.plan(0)
    assert len(evicted(made.plan(300))) == 2
    recreated(made, pods, 300)
    known = made.memory.startups
    blame = Blame(290.0 + START, "q", "default", "default/Job/train")
    known.blames["a"] = (blame, replace(blame, queue="r", namespace="other"))
    known.device_blames["gpu.example.com", "a", "gpu-0"] = known.blames["a"]
    kept = unpacked_startups(packed_startups(known.kept()))
    assert kept == known.kept()
    made.memory.startups = Startups()
    made.memory.startups.recall(kept)
    plan = made.plan(301)
    assert not plan.placements
    assert plan.unplaced[0].stage is Stage.NOT_READY
    assert [each.node for each in plan.avoided_nodes] == ["a"]
    [(device, seconds)] = made.memory.startups.devices_to_avoid(START + 301)
    assert (device[2], seconds) == ("gpu-0", 1800 - 11)
    # Too much is bounded: the last tries are kept.
    old = kept.attempts[KEY]
    many = {f"{i:x}": replace(old, owner=f"{hash(str(i)):x}", failed=float(i)) for i in range(5000)}
    monkeypatch.setattr(kept_history, "MAX_STARTUPS_BYTES", 10_000)
    text = packed_startups(replace(kept, attempts=many))
    assert len(text) <= 10_000
    assert 0 < len(unpacked_startups(text).attempts) < 5000
    assert f"{4999:x}" in unpacked_startups(text).attempts
    assert unpacked_startups("x") == unpacked_startups("") == StartupRecord()


def test_only_gangs_of_the_cycle_that_have_a_limit_are_timed():
    made = cluster(node("a"), queue("q", 8, **TIMEOUT), queue("free", 8))
    made.add(*(pod(each, queue=each, node="a") for each in ("q", "free")))
    snapshot = made.snapshot(10.0)
    unready = {key: {each.bound[0].pod.uid: None} for key, each in snapshot.gangs.items()}
    startups = Startups()
    seen = replace(snapshot, starting={"default/Job/gone": {}, **unready})
    startups.observe(seen, ready_rules(seen.queues))
    assert startups.since.keys() == {"default/Pod/q"}


def test_a_gang_that_is_left_out_of_the_cycle_has_no_time():
    known = Startups(since={"default/Job/gone": (START, None), "default/Job/ready": (START, START)})
    assert known.wake_at(cluster(node("a")).snapshot(10.0), {}) == [START + 60.0]


def test_gangs_that_fail_everywhere_blame_no_node():
    made = cluster(node("a", 8), node("b", 8))
    made.add(queue("q", 8, **TIMEOUT), queue("r", 8, **TIMEOUT))
    for name, of in (("one", "q"), ("two", "r")):
        owner, pods = gang(name, ["a", "b"], queue=of)
        made.add(owner, [starting(each) for each in pods])
    made.plan(0)
    made.plan(300)
    assert made.memory.startups.blames == {}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"state": PULL}, "the image of container main cannot be pulled (ImagePullBackOff: no"),
        (
            {"state": CRASH, "restart_count": 4, "last_state": CRASHED},
            "container main crashes again and again (exit code 3)",
        ),
        (
            {"state": ContainerState(waiting=ContainerWaiting("CreateContainerConfigError"))},
            "container main does not start (CreateContainerConfigError)",
        ),
        ({"started": True}, "the readiness probe of container main has not succeeded"),
        ({"state": ContainerState(waiting=ContainerWaiting("ContainerCreating"))}, ""),
    ],
)
def test_the_reason_is_told(status, said):
    one = PodStatus(container_statuses=(ContainerStatus(name="main", **status),))
    found = startup_problem(replace(pod("p"), status=one))
    assert found.startswith(said) if said else found == ""


def test_a_pod_that_gets_ready_leaves_the_others_of_its_gang_starting():
    owner, pods = gang("train", ["a", "b", "b"])
    made = cluster(node("a", 4), node("b", 4), queue("q", 8, **TIMEOUT), owner)
    made.add(ready(pods[0]), starting(pods[1]), starting(pods[2]))
    made.plan(10)
    made.add(ready(pods[1], 20.0))
    [noted] = made.plan(30).starting
    assert "1 of 3 pods is not ready" in noted.message


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("state", [ContainerState(), PULL])
def test_a_pod_first_seen_long_after_its_start_has_started_up_if_a_container_runs(started, state):
    owner, pods = gang("train", ["a"])
    made = cluster(node("a", 4), queue("q", 8, **TIMEOUT), owner)
    made.add(starting(pods[0], state, changed=100.0, started=started))
    made.plan(110)
    runs = started and state is not PULL
    assert evicted(made.plan(1000)) == ([] if runs else ["train-0"])


def test_a_pod_one_of_whose_containers_restarted_has_not_started_up():
    owner, pods = gang("train", ["a"])
    made = cluster(node("a", 4), queue("q", 8, **TIMEOUT), owner)
    one = starting(pods[0], ContainerState(), changed=100.0, started=True)
    again = ContainerStatus(name="other", started=True, restart_count=1)
    statuses = (*one.status.container_statuses, again)
    made.add(replace(one, status=replace(one.status, container_statuses=statuses)))
    assert len(made.plan(110).starting) == 1
