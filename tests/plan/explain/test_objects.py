"""Pods that ask for two groups, or two queues, are told which one does not count."""

from kai_py.config import Configuration
from kai_py.planner import Planner
from tests.support.scenario import cluster, node, pod, queue


def test_a_pod_that_names_two_groups_is_told_of_the_one_that_does_not_count():
    planner = Planner(Configuration())
    marks = {"scheduling.kai.io/pod-group": "ring", "scheduling.k8s.io/group-name": "vg"}
    planner.builder.apply("nodes", None, node("a"))
    planner.builder.apply("pods", None, pod("p", queue="team", annotations=marks))
    (problem,) = planner.decide(planner.freeze(0.0)).problems
    assert (problem.object.kind, problem.object.name) == ("Pod", "p")
    assert problem.message == (
        "belongs to gang default/PodGroup/ring; ignored: annotation scheduling.k8s.io/group-name "
        '"vg"'
    )


def test_a_label_that_names_another_queue_than_the_annotation_is_told():
    key = "scheduling.kai.io/queue-name"
    torn = pod("torn", 1, queue="a", labels={key: "b"})
    agreed = pod("agreed", 1, queue="a", labels={key: "a"})
    plan = cluster(node("n"), queue("a", 8), queue("b", 8), torn, agreed).plan()
    assert {gang.queue for gang in plan.placements} == {"a"}
    [problem] = plan.problems
    assert problem.object.name == "torn"
    assert problem.message.endswith(f'ignored: label {key} is "b", the annotation is "a"')
