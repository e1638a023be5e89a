"""The division of each level on the way to a queue, in the numbers of the cycle."""

import pytest

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.observe.share_steps import share_sentences, share_steps
from kai_py.plan.state.queues import quota_of
from kai_py.policy.fairness_rules import NATIVE
from tests.support import scenario


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
