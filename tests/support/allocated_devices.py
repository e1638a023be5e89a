"""Devices that are allocated without a claim, as tables of cases have them."""

from kai_py.dra.device_state import DeviceAllocation, DeviceState
from kai_py.dra.identity import DeviceID
from tests.support.records import replace


def set_device_allocation(
    state: DeviceState, device: DeviceID, device_allocation: DeviceAllocation
) -> None:
    """Set how a device is allocated, in place of its previous allocation."""
    row = state.find_device(device)
    consumes = row.consumes if row is not None else state.device_allocation(device).consumes
    state._store(device, replace(device_allocation, consumes=consumes))
