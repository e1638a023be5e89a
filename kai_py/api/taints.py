"""Taints and tolerations, of nodes and of devices alike (API text of v1.Toleration)."""

from kai_py.api.numbers import parse_int64
from kai_py.api.records.core import Toleration
from kai_py.api.records.node import Taint


def covers(toleration: Toleration, taint: Taint) -> bool:
    """Whether a taint is tolerated, for however short a time; no operator means Equal.

    Gt and Lt compare the taint's value, as a number, with the toleration's (KEP-5471).
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("Gt", "Lt"):
        limit, value = _whole(toleration.value), _whole(taint.value)
        if limit is None or value is None:
            return False
        return value > limit if toleration.operator == "Gt" else value < limit
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def taint_text(taint: Taint) -> str:
    """The taint as kubectl writes it: ``key=value:effect``."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _whole(text: str) -> int | None:
    """An integer as the API server accepts it here: without a sign + or leading zeros."""
    number = parse_int64(text)
    return number if str(number) == text else None
