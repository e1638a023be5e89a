"""Pods that ask for two groups are told which one does not count."""

from kai_py.config import Configuration
from kai_py.planner import Planner
from tests.scenario import node, pod


def test_a_pod_that_names_two_groups_is_told_of_the_one_that_does_not_count():
    planner = Planner(Configuration())
    marks = {"scheduling.kai.io/pod-group": "ring", "scheduling.k8s.io/group-name": "vg"}
    planner.builder.apply("nodes", None, node("a"))
    planner.builder.apply("pods", None, pod("p", queue="team", annotations=marks))
    (problem,) = planner.decide(planner.freeze(0.0)).problems
    assert (problem.object.kind, problem.object.name) == ("Pod", "p")
    assert problem.message == (
        "belongs to gang default/PodGroup/ring; disregarded: "
        'annotation scheduling.k8s.io/group-name "vg"'
    )
