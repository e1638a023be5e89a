"""The declarations of a device's CEL environment: the variable ``device`` and its fields."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from kai_py.cel.check import Environment
from kai_py.cel.types import ANY, BOOL, DYN, QUANTITY, STRING, Type, map_of

DEVICE = Type("kubernetes.DRADevice")


@dataclass(frozen=True, slots=True)
class SelectorFeatures:
    """What an expression may use, by feature gate.

    The default is everything: a scheduler reads what an API server has already admitted.
    """

    consumable_capacity: bool = True
    list_attributes: bool = True


ALL_FEATURES = SelectorFeatures()


@cache
def device_environment(features: SelectorFeatures = ALL_FEATURES) -> Environment:
    """The environment with the variable ``device``."""
    attribute = DYN if features.list_attributes else ANY
    fields = {
        "driver": STRING,
        "attributes": map_of(STRING, map_of(STRING, attribute)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    }
    if features.consumable_capacity:
        fields["allowMultipleAllocations"] = BOOL
    hidden = frozenset[str]() if features.list_attributes else frozenset({"includes"})
    return Environment({"device": DEVICE}, {DEVICE.name: fields}, hidden)
