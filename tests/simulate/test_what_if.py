""""""

import os
import signal
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.config import Configuration
from kai_py.embedded.nodes import h100_node, h100_slices
from kai_py.simulate.change_texts import SetQueue
from kai_py.simulate.changes import (
    AddNodes,
    AddObjects,
    ChangeError,
    DrainNode,
    RemoveGang,
    UnknownNameError,
)
from kai_py.simulate.fork import ForkFailedError, run_in_fork, started_in_fork
from kai_py.simulate.remedies.suggestions import suggest
from kai_py.simulate.what_if import (
    Comparison,
    LoadedCluster,
    nodes_needed,
    smallest_sufficient,
    what_if,
)
from tests.simulate.clusters import NOW, job, queue, running, simulated
from tests.simulate.manifests import ANY_DEVICE, QUEUE, allocated, gpus_of, node, pod
from tests.support.examples import examples

DAEMON_SET = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "name": "agent",
    "uid": "uid-agents",
    "controller": True,
}


def settled(*documents, **hardware):
    cluster = simulated(*documents, **hardware)
    cluster.settle(60)
    return cluster


def ask(cluster, *changes):
    return what_if(cluster.documents(), changes, Configuration(), now=cluster.clock.now())


def test_no_change_makes_no_difference():
    cluster = settled(queue("team", 8), job("six", 6, "team"), job("four", 4, "team"))
    comparison = ask(cluster)
    assert comparison == Comparison(pending=comparison.pending)
    assert len(comparison.pending) == 1


@pytest.mark.slow
def test_a_drained_gang_that_finds_another_node_loses_pods_all_the_same():
    cluster = settled(queue("team", 8), job("six", 6, "team"), nodes=2, gpus=6)
    [member, *_] = cluster.snapshot().gangs["default/Job/six"].bound
    node = member.node
    comparison = ask(cluster, DrainNode(node))
    assert [each.gang for each in comparison.restarts] == ["default/Job/six"]
    assert node not in comparison.restarts[0].nodes
    assert (comparison.starts, comparison.stops, comparison.victims) == ((), (), ())


def departing(node):
    node["metadata"]["labels"]["cloud.google.com/active-node-maintenance"] = "ONGOING"
    return node


def tainted(key):
    return lambda node: {**node, "spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "state",
    [
        lambda node: {**node, "spec": {"unschedulable": True}},
        tainted("node.kubernetes.io/not-ready"),
        tainted("ToBeDeletedByClusterAutoscaler"),
        departing,
        lambda node: node | {"status": node["status"] | {"conditions": []}},
    ],
)
def test_nodes_like_one_that_is_unusable_now_are_usable(state):
    cluster = settled(queue("team", 8), job("four", 4, "team"), nodes=0)
    found = [state(h100_node("node-0", gpus=4)), *h100_slices("node-0", gpus=4)]
    given, now = [*cluster.documents(), *found], cluster.clock.now()
    assert what_if(given, (), Configuration(), now=now).pending
    assert what_if(given, (AddNodes("node-0", 1),), Configuration(), now=now).pending == ()


@pytest.mark.parametrize("ignores", [True, False])
def test_a_job_that_ignores_evictions_survives_a_drain(ignores):
    """Eight pods fail at once, more than the default backoffLimit of 6 allows."""
    eight = job("eight", 8, "team")
    if ignores:
        rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
        eight["spec"] |= {"backoffLimit": 6, "podFailurePolicy": {"rules": [rule]}}
    else:
        eight["spec"]["backoffLimit"] = 6
    cluster = settled(queue("team", 8), eight, nodes=2, gpus=8)
    [member, *_] = cluster.snapshot().gangs["default/Job/eight"].bound
    comparison = ask(cluster, DrainNode(member.node))
    assert [each.gang for each in comparison.restarts] == ["default/Job/eight"] * ignores
    assert [each.gang for each in comparison.stops] == ["default/Job/eight"] * (not ignores)


def test_pods_of_daemon_sets_stay_on_a_drained_node():
    agent = pod("agent", 0, nodeName="node-0")
    agent["metadata"] |= {"uid": "uid-agent", "ownerReferences": [DAEMON_SET]}
    agent["status"] = {"phase": "Running"}
    cluster = settled(queue("team", 8), nodes=1)
    comparison = what_if(
        [*cluster.documents(), agent], (DrainNode("node-0"),), Configuration(), now=NOW
    )
    assert comparison.stops == ()


def test_a_drained_node_is_replaced_by_one_like_it():
    cluster = settled(queue("team", 8), job("four", 4, "team"), nodes=1)
    comparison = ask(cluster, DrainNode("node-0"), AddNodes("node-0", 1))
    assert [set(each.nodes) for each in comparison.restarts] == [{"node-0-added-1"}]
    assert comparison.pending == ()


def test_a_claim_that_only_a_pending_pod_has_is_released_if_its_node_is_drained():
    claim = allocated("left", "full", "a")
    user = pod("a", 0, resourceClaims=[{"name": "gpu", "resourceClaimName": "left"}])
    user["metadata"]["uid"] = "uid-a"
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    nodes = [node(name, **ready) for name in ("full", "other")]
    slices = [gpus_of(each["metadata"]["name"]) for each in nodes]
    given = (*nodes, *slices, ANY_DEVICE, QUEUE, claim, user)
    comparison = what_if(given, (DrainNode("full"),), Configuration(), now=NOW)
    assert comparison.pending == ()


@pytest.mark.slow
def test_a_gang_below_min_member_starts_only_if_more_of_its_pods_run():
    elastic = job("elastic", 6, "team")
    elastic["metadata"]["annotations"]["scheduling.kai.io/min-available"] = "2"
    cluster = settled(queue("team", 8), elastic, nodes=1)
    assert [each.gang for each in ask(cluster).pending] == ["default/Job/elastic"]
    assert ask(cluster).starts == ()
    assert [len(each.nodes) for each in ask(cluster, AddNodes("node-0", 1)).starts] == [6]


GROUP = {
    "name": "b200",
    "labels": {"example.com/pool": "b200"},
    "taints": [{"key": "example.com/gpus"}],
    "allocatable": {"cpu": 64, "memory": "512Gi"},
    "devices": [
        {
            "driver": "gpu.nvidia.com",
            "count": 4,
            "attributes": {"type": "gpu", "numa": 1, "nvlink": True},
            "capacity": {"memory": "180Gi"},
        }
    ],
}


def tolerant(name, pods, **selector):
    made = job(name, pods, "team")
    spec = made["spec"]["template"]["spec"]
    spec["tolerations"] = [{"key": "example.com/gpus", "operator": "Exists"}]
    spec["nodeSelector"] = {"example.com/pool": "b200"} | selector
    return made


@pytest.mark.slow
def test_a_gang_of_claims_fits_a_node_group_without_a_node():
    groups = Configuration(autoscaling={"nodeGroups": [GROUP]})
    cluster = settled(queue("team", 100), tolerant("train", 7), nodes=0)
    documents, now = cluster.documents(), cluster.clock.now()
    few = what_if(documents, [AddNodes("b200", 1)], groups, now=now)
    assert (len(few.starts), len(few.pending)) == (0, 1)
    enough = what_if(documents, [AddNodes("b200", 2)], groups, now=now)
    assert [len(each.nodes) for each in enough.starts] == [7]
    assert nodes_needed(documents, (), groups, like="b200", now=now).nodes == 2
    present = LoadedCluster(documents, groups, now)
    found = suggest(documents, present, present.settled(), "default/Job/train", lambda: True)
    assert [each.text for each in found] == ["add 2 nodes like b200"]
    with pytest.raises(UnknownNameError) as unknown:
        what_if(documents, [AddNodes("b300", 1)], groups, now=now)
    assert "b200" in unknown.value.known


@pytest.mark.slow
def test_nothing_is_suggested_where_no_node_group_helps():
    groups = Configuration(autoscaling={"nodeGroups": [GROUP]})
    wrong = tolerant("train", 2, **{"example.com/pool": "h100"})
    cluster = settled(queue("team", 100), wrong, nodes=0)
    documents = cluster.documents()
    present = LoadedCluster(documents, groups, cluster.clock.now())
    found = suggest(documents, present, present.settled(), "default/Job/train", lambda: True)
    assert not [each for each in found if "add " in each.text]


def test_a_larger_maximum_starts_the_gang_that_waited_for_it():
    cluster = settled(queue("team", 0, 4), job("one", 4, "team"), job("two", 4, "team"))
    comparison = ask(cluster, SetQueue("team", ("maxGPUs",), 8))
    assert [len(each.nodes) for each in comparison.starts] == [4]
    assert not comparison.victims
    assert not comparison.pending
    [change] = comparison.queues
    assert change.allocated == (4, 8)


@pytest.mark.slow
def test_a_new_gang_that_reclaims_names_its_victims():
    cluster = settled(queue("a", 0), queue("b", 4), job("greedy", 8, "a"))
    comparison = ask(cluster, AddObjects([job("new", 4, "b")]))
    assert [each.gang for each in comparison.starts] == ["default/Job/new"]
    assert {each.gang for each in comparison.victims} == {"default/Job/greedy"}
    assert [each.gang for each in comparison.stops] == ["default/Job/greedy"]


@pytest.mark.slow
def test_the_fewest_nodes_until_no_gang_waits():
    cluster = settled(queue("team", 100), job("big", 17, "team"), nodes=1)
    needed = nodes_needed(cluster.documents(), (), Configuration(), like="node-0", now=NOW)
    assert needed.nodes == 4, "17 GPUs are on 5 nodes of 4, one of them is there"


def test_a_gang_that_waits_for_a_queue_waits_for_no_node():
    cluster = settled(queue("team", 0, 1), job("over", 2, "team"), nodes=1)
    needed = nodes_needed(cluster.documents(), (), Configuration(), like="node-0", now=NOW)
    assert needed.nodes == 0


@pytest.mark.slow
def test_nodes_that_help_no_gang_are_tried_twice_per_pod_at_most():
    whole = job("wide", 1, "team")
    whole["spec"]["template"]["spec"]["containers"][0]["resources"] = {
        "limits": {"nvidia.com/gpu": 8}
    }
    cluster = settled(queue("team", 100), whole, job("more", 9, "team"), nodes=1)
    needed = nodes_needed(cluster.documents(), (), Configuration(), like="node-0", now=NOW)
    assert (needed.nodes, needed.most) == (None, 20)


@given(st.integers(0, 300))
def test_the_least_number_is_found(wanted):
    asked = []

    def suffices(count):
        asked.append(count)
        return count >= wanted

    assert smallest_sufficient(suffices, 256) == (wanted if wanted <= 256 else None)
    assert max(asked) <= 256
    assert len(asked) <= 18


JOBS = st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["a", "b"])), min_size=1, max_size=6)
CHANGES = st.one_of(
    st.builds(AddNodes, st.just("node-0"), st.integers(1, 2)),
    st.builds(DrainNode, st.sampled_from(["node-0", "node-1"])),
    st.builds(SetQueue, st.sampled_from(["a", "b"]), st.just(("deservedGPUs",)), st.integers(0, 8)),
    st.builds(SetQueue, st.sampled_from(["a", "b"]), st.just(("maxGPUs",)), st.integers(8, 12)),
    st.builds(RemoveGang, st.just("default/Job/job-0")),
    st.builds(
        lambda pods, team: AddObjects([job("added", pods, team)]),
        st.integers(1, 8),
        st.sampled_from(["a", "b"]),
    ),
)


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(JOBS, CHANGES)
def test_what_was_told_is_what_then_happens(jobs, change):
    """Asked on a copy, then done on the cluster itself."""
    documents = [job(f"job-{i}", pods, team) for i, (pods, team) in enumerate(jobs)]
    cluster = settled(queue("a", 4), queue("b", 4), *documents)
    comparison = ask(cluster, change)
    before = running(cluster)
    change.apply(cluster)
    course = cluster.settle(600)
    after = running(cluster)
    waiting = {each.gang for each in course.last_plan.unplaced}
    assert {each.gang for each in comparison.pending} == waiting
    told = {each.gang.rpartition("/")[2] for each in comparison.starts}
    assert told >= after - before
    assert {str(each.pod) for each in comparison.victims} == {
        str(each.pod) for each in course.evictions
    }


def test_what_a_copy_does_is_not_seen_here():
    kept = [1]
    assert run_in_fork(lambda: (kept.append(2), len(kept))[1]) == 2
    assert kept == [1]
    assert run_in_fork(os.getpid) != os.getpid()


def test_what_it_raises_is_raised_here():
    def refuse():
        raise ChangeError("node n1: not found")

    with pytest.raises(ChangeError, match="node n1"):
        run_in_fork(refuse)


def test_a_large_answer_comes_whole():
    assert run_in_fork(lambda: b"x" * 10_000_000) == b"x" * 10_000_000


@pytest.mark.parametrize("end", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: lambda: 0])
def test_a_copy_without_an_answer_is_an_error(end):
    with pytest.raises(ForkFailedError):
        run_in_fork(end)


def test_a_copy_works_beside_this_process():
    waiting, telling = os.pipe()
    with started_in_fork(lambda: os.read(waiting, 1)) as result:
        os.write(telling, b"x")
        assert result() == b"x"


def test_a_copy_that_nothing_waits_for_is_ended():
    told, telling = os.pipe()

    def sleep():
        os.write(telling, str(os.getpid()).encode())
        time.sleep(3600)

    with started_in_fork(sleep):
        child = int(os.read(told, 10))
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
