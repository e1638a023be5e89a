"""Devices and claims in step with the objects, in whatever order these come."""

import pytest

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.dra.identity import PoolID
from kai_py.snapshot.snapshot import DeviceObjects
from tests.plan.state.test_device_safety import slices
from tests.support.scenario import claim

POOL = PoolID("gpu.nvidia.com", "n0")
SLICES = {piece.metadata.name: piece for piece in slices("n0")}
HELD = claim("c", held_by=["p"], on=[("n0", "part-0"), ("n0", "part-1")])
CLAIMS = {("default", "c"): HELD}


@pytest.mark.parametrize("order", ["together", "claims first", "slices first", "slices back"])
def test_held_partitions_draw_on_their_counters(order):
    devices = ClusterDevices()
    steps = {
        "together": [(SLICES, CLAIMS)],
        "claims first": [({}, CLAIMS), (SLICES, CLAIMS)],
        "slices first": [(SLICES, {}), (SLICES, CLAIMS)],
        "slices back": [(SLICES, CLAIMS), ({}, CLAIMS), (dict(SLICES), CLAIMS)],
    }[order]
    for generation, (listed, claims) in enumerate(steps):
        devices.sync(
            DeviceObjects(
                slices=listed, claims=claims, generation=generation, claims_generation=generation
            )
        )
    assert devices.state.usage(POOL).counters == {("card", "slots"): 2 * 10**9}
    devices.sync(DeviceObjects(slices=SLICES, generation=8, claims_generation=8))
    assert devices.state.pools == {}
