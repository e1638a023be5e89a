"""A queue is explained by what it has, is entitled to, borrows and lends, and what would change.

The division of each level on the way to a queue, in the numbers of the cycle.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.observe.queue_explanation import explain_queue
from kai_py.observe.share_steps import share_sentences, share_steps
from kai_py.plan.state.queues import quota_of
from kai_py.policy.fairness_rules import NATIVE
from tests.support import scenario
from tests.support.records import replace
from tests.support.scenario import cluster, node, pod, queue


def explained(*objects, name="own"):
    world = cluster(node("a", 8), *objects)
    found = explain_queue(world.snapshot(), world.plan(), name)
    assert found is not None
    return found


def test_a_queue_that_borrows_names_the_lenders():
    found = explained(queue("own", 2), queue("idle", 6), pod("runs", 8, queue="own", node="a"))
    assert found.sentences == (
        "It requests 8 GPUs and has 8; it deserves 2 and has no max.",
        "Its fair share is 8, and it has all of it.",
        "It borrows 6 GPUs, of what idle (6) deserves and does not use.",
        "None of its gangs is pending.",
    )


def test_a_queue_that_lends_names_the_borrowers():
    found = explained(queue("own", 4), queue("other", 4), pod("o", 8, queue="other", node="a"))
    assert "other (4) borrows GPUs, and loses them when this queue needs its own." in (
        found.sentences
    )


def test_queues_of_others_are_several():
    world = cluster(
        node("a", 8), queue("own", 4), queue("other", 4), pod("o", 8, queue="other", node="a")
    )
    found = explain_queue(world.snapshot(), world.plan(), "own", "own".__eq__)
    assert found is not None
    told = "queues of others (4) borrow GPUs, and lose them when this queue needs its own."
    assert told in found.sentences


def test_a_max_is_what_would_change_it():
    found = explained(
        queue("own", 2, 2), pod("runs", 2, queue="own", node="a"), pod("waits", 2, queue="own")
    )
    assert found.pending == {"QueueMax": 1}
    assert found.sentences[-2:] == (
        "Pending gangs: 1 QueueMax.",
        "QueueMax: a larger maxGPUs, here or above, is what these need first.",
    )


def test_there_is_no_such_queue():
    world = cluster(node("a"), queue("own"), pod("waits", 1, queue="gone"))
    assert explain_queue(world.snapshot(), world.plan(), "gone") is None


def test_a_queue_that_the_plan_sets_aside_is_not_called_deleted():
    world = cluster(node("a", 8), queue("own", 2), pod("runs", 2, queue="own", node="a"))
    plan = replace(world.plan(), queues=())
    assert explain_queue(world.snapshot(), plan, "own") is None


def test_a_deleted_queue_with_running_gangs_is_explained():
    runs = [pod(f"r{number}", 2, queue="gone", node="a") for number in range(2)]
    found = explained(queue("own"), *runs, pod("waits", 1, queue="gone"), name="gone")
    assert (found.allocated, found.requested) == (4.0, 5.0)
    assert found.pending == {"QueueNotFound": 1}
    assert found.sentences == (
        "Problem: queue 'gone' does not exist; 2 gangs with 2 pods on nodes are charged to no "
        "queue. Create it to charge it with them",
    )


def test_gangs_that_a_closed_queue_is_not_charged_with_are_counted():
    closed = queue("own", 8, namespaces={"names": ["elsewhere"]})
    found = explained(closed, pod("runs", 2, queue="own", node="a"))
    assert found.allocated == 0.0
    assert found.sentences[-1] == (
        "Problem: 1 gang with 1 pod on nodes is charged to no queue: queue 'own' does not accept "
        "its namespace"
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.one_of(st.none(), st.integers(0, 8)), st.integers(0, 9)),
        min_size=1,
        max_size=4,
    )
)
def test_every_queue_of_any_cluster_is_explained(queues):
    objects = [
        each
        for number, (deserved, maximum, gpus) in enumerate(queues)
        if maximum is None or maximum >= deserved
        for each in (
            queue(f"q{number}", deserved, maximum),
            pod(f"p{number}", gpus, queue=f"q{number}"),
        )
    ]
    world = cluster(node("a", 8), *objects)
    snapshot, plan = world.snapshot(), world.plan()
    for share in plan.queues:
        found = explain_queue(snapshot, plan, share.queue)
        assert found is not None
        assert all(sentence.endswith(".") for sentence in found.sentences)
        assert "0000" not in " ".join(found.sentences)


def test_what_can_never_run_is_said_with_the_gangs():
    found = explained(queue("own", 2), pod("huge", 9, queue="own"), pod("runs", 1, queue="own"))
    assert (
        "Of what it requests, the nodes of this cluster can never serve 9 GPUs, which do not count "
        "as demand: default/Pod/huge."
    ) in found.sentences
    assert found.fair_share == 1


def quota(*objects):
    snapshot = scenario.cluster(*objects).snapshot()
    devices = ClusterDevices()
    return quota_of(snapshot, NATIVE, devices.accounting, devices.node_gpus(snapshot.nodes))


@pytest.fixture
def divided():
    return quota(
        scenario.node("n1", gpus=100),
        scenario.queue("org", 60),
        scenario.queue("rest", 20),
        scenario.queue("a", 20, parent="org", weight=3),
        scenario.queue("b", 10, parent="org", weight=1),
        scenario.queue("c", 5, 5, parent="org"),
        *scenario.job_with_pods("ja", 60, queue="a"),
        *scenario.job_with_pods("jb", 60, queue="b"),
        *scenario.job_with_pods("jc", 60, queue="c"),
        *scenario.job_with_pods("jr", 4, queue="rest"),
    )


def test_each_level_divides_what_the_one_above_got(divided):
    first, second = share_steps(divided, "a")
    assert (first.parent, first.budget, first.queue, len(first.siblings)) == ("", 100.0, "org", 2)
    assert (second.parent, second.budget) == ("org", first.followed.fair_share)
    assert second.budget == 96.0
    assert [each.queue for each in second.siblings] == ["a", "b", "c"]
    by_name = {each.queue: each for each in second.siblings}
    assert [by_name[q].guaranteed for q in "abc"] == [20.0, 10.0, 5.0]
    assert [by_name[q].weight_share for q in "abc"] == [0.75, 0.25, 0.0]
    assert [by_name[q].fair_share for q in "abc"] == [60.0, 31.0, 5.0]
    for each in (*first.siblings, *second.siblings):
        assert each.fair_share == each.guaranteed + each.from_remainder


def test_the_steps_are_told_in_numbers(divided):
    told = "\n".join(share_sentences(share_steps(divided, "a")))
    assert "100 GPUs of the cluster are divided among 2 queues." in told
    assert "96 GPUs of org's share are divided among 3 queues." in told
    assert "a is guaranteed 20: it deserves 20." in told
    assert "weight 3 give a a share of 75.0%; it can use 40 and gets 40." in told
    assert told.endswith("a: 20 + 40 = 60.")
    assert "c can use no more." in "\n".join(share_sentences(share_steps(divided, "c")))


def test_a_guarantee_that_is_cut_says_so():
    short = quota(
        scenario.node("n1", gpus=8),
        scenario.queue("a", 12),
        scenario.queue("b", 4),
        *scenario.job_with_pods("ja", 20, queue="a"),
        *scenario.job_with_pods("jb", 20, queue="b"),
    )
    told = "\n".join(share_sentences(share_steps(short, "b")))
    assert "scaled down in proportion" in told


def test_what_is_not_known_has_no_steps(divided):
    assert share_steps(divided, "missing") == ()
    assert share_steps(divided, "a", "example.com/nothing") == ()
    (step, _) = share_steps(divided, "a", "cpu")
    assert step.followed.requested == 180.0
