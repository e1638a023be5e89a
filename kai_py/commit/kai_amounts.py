"""Amounts as KAI writes them into statuses: resource lists with GPUs as ``nvidia.com/gpu``."""

from collections.abc import Mapping

from kai_py.commit.amounts import written
from kai_py.snapshot.accounting import DEVICE_CLASS, GPU
from kai_py.snapshot.queue_objects import in_api_units
from kai_py.snapshot.queue_specs import DEVICE_ATTRIBUTE

GPU_RESOURCE = "nvidia.com/gpu"


def resource_list(amounts: Mapping[str, float]) -> dict[str, str]:
    """Finite amounts above nothing, rounded to millionths, by name.

    Devices by class are left out: KAI's statuses count GPUs, whatever they were asked for by.
    """
    shown = in_api_units(
        {
            name: amount
            for name, amount in amounts.items()
            if not name.startswith((DEVICE_CLASS, DEVICE_ATTRIBUTE))
        }
    )
    named = {GPU_RESOURCE if name == GPU else name: amount for name, amount in shown.items()}
    quantities = {name: written(name, named[name]) for name in sorted(named)}
    return {name: str(quantity) for name, quantity in quantities.items() if quantity}
