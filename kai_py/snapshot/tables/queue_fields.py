"""The fields of a Queue and the amounts in them, as the API has them that it was written in.

KAI counts cpu in millicores and memory in megabytes of 10**6, and writes -1 for unlimited.
"""

import math
from collections.abc import Mapping

from msgspec import Struct

from kai_py.api.records.kai import QUEUE_API_VERSION
from kai_py.api.texts import count_of
from kai_py.snapshot.accounting import GPU

KAI_UNITS: Mapping[str, float] = {GPU: 1.0, "cpu": 1.0, "memory": 1e6}
"""Row amount of one of KAI's units, by resource; of others its Queues have no fields."""
KAI_BOUNDS: Mapping[str, str] = {"deserved": "quota", "max": "limit", "weight": "overQuotaWeight"}
"""KAI's names of the fields of a resource, by ours."""
_KAI_UNIT_NAMES = {"cpu": "millicores", "memory": "MB"}


class QueueFields(Struct, frozen=True):
    """The fields of Queues of one API."""

    api_version: str

    @property
    def is_kai(self) -> bool:
        """Whether they are those of KAI's Queues."""
        return self.api_version == QUEUE_API_VERSION

    @property
    def parent(self) -> str:
        """The field that names the parent."""
        return "spec.parentQueue" if self.is_kai else "spec.parent"

    def path(self, resource: str, bound: str) -> str:
        """The field for ``deserved``, ``max`` or ``weight`` (``bound``) of a resource."""
        if self.is_kai:
            return f"spec.resources.{resource}.{KAI_BOUNDS[bound]}"
        return f"spec.{bound}GPUs" if resource == GPU else f"spec.resources[{resource}].{bound}"

    def has(self, resource: str) -> bool:
        """Whether there are fields for a resource."""
        return not self.is_kai or resource in KAI_UNITS

    def unit(self, resource: str) -> float:
        """Row amount of the unit in which the fields have a resource."""
        return KAI_UNITS[resource] if self.is_kai else native_unit(resource)

    def text(self, amount: float, resource: str) -> str:
        """An amount in row units as people read it."""
        if self.is_kai and math.isinf(amount):
            return "-1 (unlimited)"
        shown = amount / self.unit(resource)
        if resource == GPU:
            return count_of(shown, "GPU")
        return f"{shown:.10g} {_KAI_UNIT_NAMES[resource] if self.is_kai else resource}"


def native_unit(resource: str) -> float:
    """Row amount of one unit of our own API, which has cores."""
    return 1000.0 if resource == "cpu" else 1.0
