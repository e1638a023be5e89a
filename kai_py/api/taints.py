"""Taints and tolerations, of nodes and of devices alike (API text of v1.Toleration)."""

from kai_py.api.records.core import Toleration
from kai_py.api.records.node import Taint
from kai_py.api.records.resource import DeviceTaint, DeviceToleration


def covers(toleration: Toleration | DeviceToleration, taint: Taint | DeviceTaint) -> bool:
    """Whether a taint is tolerated, for however short a time; no operator means Equal."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
