"""The reservation of a GPU is released only if nothing shares the GPU once views have caught up."""

from types import SimpleNamespace

import pytest

from kai_py.api.gpu_reservation import GpuGroup
from kai_py.api.records.core import ObjectMeta, Pod, PodSpec, PodStatus
from kai_py.commit.upkeep.reservation_pods import GpuUpkeep

GPU = GpuGroup("n", "g")


@pytest.mark.parametrize(
    ("behind", "phase", "used", "sharers", "released"),
    [
        ("", "Running", False, (), True),
        ("", "Running", True, (), False),
        ("", "Running", False, ("pod",), False),
        ("", "Failed", True, ("pod",), True),
        ("the watch is behind", "Running", False, (), False),
        ("the watch is behind", "Failed", False, (), False),
    ],
)
async def test_a_gpu_that_is_shared_again_stays_reserved(behind, phase, used, sharers, released):
    done = []

    async def catch_up():
        assert GPU in upkeep.releasing, "no pod is given the GPU meanwhile"
        return behind

    async def release(gpu, ref):
        done.append((gpu, ref.name))
        return ""

    upkeep = SimpleNamespace(
        releasing=set(),
        catch_up=catch_up,
        in_use=lambda: {GPU} if used else set(),
        groups=SimpleNamespace(sharers=lambda _gpu: sharers),
        reservations=SimpleNamespace(release=release),
    )
    meta = ObjectMeta(name="r", namespace="ns", uid="r")
    pod = Pod(metadata=meta, spec=PodSpec(node_name="n"), status=PodStatus(phase=phase))
    await GpuUpkeep._release(upkeep, GPU, pod)
    assert done == ([(GPU, "r")] if released else [])
    assert not upkeep.releasing
