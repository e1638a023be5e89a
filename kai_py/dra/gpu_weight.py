"""How many GPUs does a device stand for, as queues count them?

A device of a GPU driver is one GPU; a MIG partition ``Ng.*`` is N of the 7 compute slices of one.
What a driver publishes beside its GPUs (channels, daemons) is none. Drivers are a setting, never
guessed from the name of a class.
"""

import re
from collections.abc import Sequence

from kai_py.dra.rows import DeviceRow
from kai_py.snapshot.accounting import MIG_SLICES_PER_GPU

_PROFILE = re.compile(r"^(\d+)g\.")
_NO_GPU_TYPES = frozenset({"channel", "daemon", "nic"})


def device_gpus(row: DeviceRow, drivers: frozenset[str]) -> float:
    """GPUs that holding ``row`` costs."""
    if row.id.driver not in drivers:
        return 0.0
    profile = row.text("profile")
    partition = _PROFILE.match(profile) if profile else None
    if partition:
        return int(partition.group(1)) / MIG_SLICES_PER_GPU
    return 0.0 if row.text("type") in _NO_GPU_TYPES else 1.0


def physical_gpus(rows: Sequence[DeviceRow], drivers: frozenset[str]) -> float:
    """GPUs that the devices of a slice add to their node.

    A partition adds nothing beside the GPU it is cut from, which is listed too or, where it draws
    on counters, published in another slice.
    """
    whole = {uuid for row in rows if (uuid := row.text("uuid"))}
    return sum(
        device_gpus(row, drivers)
        for row in rows
        if not (parent := row.text("parentUUID")) or not (row.consumes or parent in whole)
    )
