"""KAI's Queue: its defaults and units are kept, surprises included."""

import math

from tests.dialects.feeding import Cluster, node
from tests.dialects.kai.objects import kai_queue, native_queue

FULL = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  parentQueue: department
  priority: 150
  preemptMinRuntime: 1h30m
  reclaimMinRuntime: 30s
  resources:
    gpu: {quota: 2.5, limit: 8, overQuotaWeight: 3}
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: 1000, limit: 4000}
"""


def test_every_field_in_our_units():
    [spec] = Cluster(FULL).snapshot().queues
    assert (spec.name, spec.parent, spec.priority) == ("team", "department", 150)
    assert spec.deserved == {"gpu": 2.5, "cpu": math.inf, "memory": 1000e6}
    assert spec.max == {"gpu": 8, "cpu": math.inf, "memory": 4000e6}
    assert spec.weights == {"gpu": 3, "cpu": 1, "memory": 0}
    assert (spec.preempt_min_runtime, spec.reclaim_min_runtime) == (5400, 30)


def test_what_is_unset_is_zero_and_the_priority_is_100():
    bare = {**kai_queue("team"), "spec": {}}
    [spec] = Cluster(bare).snapshot().queues
    nothing = {"gpu": 0, "cpu": 0, "memory": 0}
    assert (spec.deserved, spec.max, spec.weights) == (nothing, nothing, nothing)
    assert spec.priority == 100
    assert spec.preempt_min_runtime is None


def test_an_amount_below_minus_one_and_a_bad_duration_are_told_and_stop_no_other():
    broken = kai_queue("broken", quota=-2, limit=4)
    broken["spec"]["reclaimMinRuntime"] = "soon"
    shares = {share.queue: share for share in Cluster(broken, kai_queue("fine")).plan().queues}
    reasons = [problem.reason for problem in shares["broken"].problems]
    assert any("'soon' is not a duration" in reason for reason in reasons)
    wanted = "must be a number of at least 0, or -1 for unlimited"
    assert any(f"spec.resources.gpu.quota is -2, {wanted}" in reason for reason in reasons)
    assert shares["fine"].problems == ()


def test_one_name_in_both_apis_is_told_at_the_queue_and_the_older_counts():
    cluster = Cluster(kai_queue("team", quota=2, limit=2), native_queue("team"), node("a"))
    [share] = cluster.plan().queues
    assert share.deserved["gpu"] == 8
    [problem] = share.problems
    assert "here that of scheduling.kai.io/v1alpha1" in problem.reason
    assert "delete that of scheduling.run.ai/v2" in problem.reason
    cluster.remove(native_queue("team"))
    [share] = cluster.plan().queues
    assert (share.deserved["gpu"], share.problems) == (2, ())


def test_a_native_queue_may_stand_below_one_of_kai():
    shares = Cluster(kai_queue("org", quota=8), native_queue("team", parent="org")).plan().queues
    assert {share.queue: (share.parent, share.problems) for share in shares} == {
        "org": ("", ()),
        "team": ("org", ()),
    }
