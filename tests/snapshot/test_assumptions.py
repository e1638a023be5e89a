"""What an assumed binding says of a pod, until it is withdrawn."""

from kai_py.api.gpu_share import SharedGpu
from kai_py.api.records.core import ObjectMeta, Pod
from kai_py.api.records.resource import ResourceClaim
from kai_py.snapshot.derived_pod import AssumedBinding, PodPlacement
from kai_py.snapshot.tables.assumptions import Assumptions

CLAIM = ResourceClaim(metadata=ObjectMeta(name="made", uid="c"))


def test_all_that_a_binding_gives_a_pod_counts_until_it_is_withdrawn():
    assumptions, pod = Assumptions(60.0), Pod(metadata=ObjectMeta(name="p", uid="p"))
    gpus, amounts = (SharedGpu("g", 0),), {"cpu": 1.0}
    assumptions.assume(AssumedBinding("p", "n", gpus=gpus, new_claim=CLAIM, node_amounts=amounts))
    found = assumptions.placement(pod)
    assert found == PodPlacement("n", gpus=gpus, gets_claim=True, node_amounts=amounts)
    assumptions.assume(AssumedBinding("p", "m"))
    assert assumptions.placement(pod) == PodPlacement("m")
    assumptions.forget("p")
    assert assumptions.placement(pod) == PodPlacement("")
