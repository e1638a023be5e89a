from kai_py.grouping.gang import Owner
from kai_py.observe.plan_text import describe_plan
from kai_py.plan.plan import Action, Eviction, Nomination, Plan, Stage, Unplaced
from tests.commit.cluster import Cluster, gang_with_claims

JOB = Owner("batch/v1", "Job", "team-a", "train", "u")


def test_every_decision_is_a_line():
    cluster = Cluster()
    gang = gang_with_claims(cluster, 2)
    pod = gang.pods[0].pod
    eviction = Eviction(
        pod, "node-b", "team-a/Job/old", JOB, "queue-a", Action.PREEMPT, "g", "q", "by priority."
    )
    plan = Plan(
        placements=(gang,),
        nominations=(Nomination("team-a/Job/next", pod, "node-c"),),
        evictions=(eviction,),
        unplaced=(
            Unplaced("team-a/Job/last", JOB, "queue-a", Stage.RESOURCES, "no capacity.", ()),
        ),
    )
    assert describe_plan(plan).splitlines() == [
        "place team-a/Job/train (queue queue-a, allocate): 2 pods on 1 node",
        "  team-a/worker-0 -> node-a with node-a/gpu-0",
        "  team-a/worker-1 -> node-a with node-a/gpu-1",
        "evict team-a/worker-0 from node-b (preempt): by priority.",
        "nominate team-a/worker-0 -> node-c (gang team-a/Job/next)",
        "pending team-a/Job/last (queue queue-a, Resources): no capacity.",
    ]


def test_an_empty_plan_says_so():
    assert describe_plan(Plan()) == "nothing to do"
