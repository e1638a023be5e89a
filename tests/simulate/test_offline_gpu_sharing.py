"""A GPU that no pod of a file shares any more is a whole one again."""

import pytest

from tests.simulate.manifests import QUEUE, node, placed_on, plan, pod

NAMESPACE = "kai-resource-reservation"


def reservation(group, **labels):
    found = pod(f"reservation-{group}", node="n0")
    labels |= {"app": NAMESPACE, "runai-gpu-group": group}
    return found | {"metadata": {"name": group, "namespace": NAMESPACE, "labels": labels}}


def share(name, group, priority=0):
    found = pod(name, gpus=0, node="n0", priority=priority)
    found["metadata"]["labels"] |= {"runai-gpu-group": group}
    found["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    found["spec"]["containers"][0]["resources"] = {}
    return found


@pytest.mark.parametrize("labels", [{}, {"app.kubernetes.io/managed-by": "kai-py"}])
def test_evicted_shares_leave_a_whole_gpu(labels):
    groups = ("left", "right")
    found = plan(
        QUEUE,
        node("n0", gpus=2),
        *(reservation(group, **labels) for group in groups),
        *(share(f"{group}-{number}", group) for group in groups for number in range(2)),
        pod("urgent", priority=10),
        until_rest=True,
    )
    assert placed_on(found) == {"default/urgent": "n0"}
    assert len({each["pod"].split("-")[0] for each in found["evictions"]}) == 1
    assert len(found["evictions"]) == 2
    assert found["rest"]


def test_a_gpu_that_is_shared_stays_reserved():
    kept = plan(
        QUEUE, node("n0", gpus=1), reservation("g"), share("s", "g"), pod("late"), until_rest=True
    )
    assert not kept["placements"]
    assert kept["rest"]
