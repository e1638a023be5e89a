"""A gang whose other pods have succeeded is completed by the pods that are created again."""

from collections.abc import Iterable

from kai_py.plan.plan import Stage
from tests.support.scenario import Cluster, cluster, node, placed, pod, queue

GROUP = {"scheduling.kai.io/pod-group": "g", "scheduling.kai.io/min-available": "4"}


def world(*, running: int, succeeded: int, waiting: Iterable[str], gpus: int = 8) -> Cluster:
    on_node = {"queue": "a", "node": "n", "annotations": GROUP}
    return cluster(
        node("n", gpus=gpus),
        queue("a", 8),
        [pod(f"runs-{index}", **on_node) for index in range(running)],
        [pod(f"ended-{index}", phase="Succeeded", **on_node) for index in range(succeeded)],
        [pod(name, queue="a", created=100, annotations=GROUP) for name in waiting],
    )


def test_a_pod_that_is_created_again_starts_beside_those_that_run() -> None:
    assert set(placed(world(running=1, succeeded=2, waiting=["w"]).plan())) == {"w"}


def test_pods_that_are_created_again_start_together() -> None:
    waiting = ["w-0", "w-1"]
    assert set(placed(world(running=1, succeeded=1, waiting=waiting).plan())) == set(waiting)
    assert not placed(world(running=1, succeeded=1, waiting=waiting, gpus=2).plan())


def test_pods_that_were_all_evicted_start_together_without_those_that_have_succeeded() -> None:
    waiting = ["w-0", "w-1", "w-2"]
    assert set(placed(world(running=0, succeeded=1, waiting=waiting).plan())) == set(waiting)
    assert not placed(world(running=0, succeeded=1, waiting=waiting, gpus=2).plan())
    assert not placed(world(running=0, succeeded=1, waiting=waiting[:2]).plan())


def test_a_gang_whose_pods_were_lost_or_of_which_none_runs_waits_for_minmember() -> None:
    for running, succeeded in ((1, 1), (0, 4)):
        plan = world(running=running, succeeded=succeeded, waiting=["w"]).plan()
        assert not placed(plan)
        assert [each.stage for each in plan.unplaced] == [Stage.BELOW_MIN_MEMBER]
