"""MIG devices that pods have by KAI's annotation: which pods may close those of a node."""

import pytest

from kai_py.grouping.admitted import ADMITTED_KEY
from tests.support.scenario import cluster, node, placed, pod, queue

MIG = "nvidia.com/mig-1g.5gb"
PROFILE = {MIG: "1"}


def started(each):
    made = node("n", 0)
    made.status.allocatable[MIG] = "2"
    waits = pod("waits", 0, queue="team", requests={MIG: "1"})
    return placed(cluster(made, queue("team", 8), each, waits).plan()) == {"waits": "n"}


def test_what_kai_gave_a_pod_by_annotation_is_not_given_to_another():
    assert not started(pod("runs", 0, queue="team", node="n", annotations=PROFILE))


@pytest.mark.parametrize(
    "options",
    [
        {"scheduler_name": "default-scheduler", "annotations": PROFILE},
        {"annotations": {**PROFILE, ADMITTED_KEY: "{}"}},
        {"annotations": {}},
    ],
    ids=["of another scheduler", "bound by us", "not annotated"],
)
def test_an_annotation_of_any_other_pod_closes_no_devices(options):
    assert started(pod("runs", 0, queue="team", node="n", **options))
