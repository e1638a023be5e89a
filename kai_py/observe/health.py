"""Health and readiness of the scheduler, as sentences on what is wrong; none when all is well.

A watch that fails for ``UNREACHABLE_SECONDS`` makes the process unready, not unhealthy, however
long it fails: its data grows old, but a restart would not help, and what was read last would be
lost. So does a watch that is silent where its kind should have been listed ``GRACE_SECONDS`` ago.
If that list should have ended, too, and there is not even an error, the watch hangs. A cycle that
runs for ``STUCK_SECONDS`` is stuck. A hanging event loop answers no probe at all, which the kubelet
treats as unhealthy.
"""

from collections.abc import Iterable

from kai_py.watch.mirror import KindStatus
from kai_py.watch.reflector import LIST_SECONDS

GRACE_SECONDS = 45.0
UNREACHABLE_SECONDS = 5.0
STUCK_SECONDS = 120.0


def stale_watches(kinds: Iterable[KindStatus]) -> list[str]:
    """Served kinds whose watch receives nothing, not even an error."""
    return [
        f"{kind.kind}: no watch events and no error for {kind.age:.0f} s"
        for kind in kinds
        if kind.api_version
        and not kind.problem
        and kind.age > kind.listed_after + LIST_SECONDS + GRACE_SECONDS
    ]


def unsynced_kinds(kinds: Iterable[KindStatus]) -> list[str]:
    """Kinds whose first list has not been read."""
    return [
        f"{kind.kind}: not read yet: {_reason(kind)}"
        for kind in kinds
        if not kind.synced and (kind.required or not kind.missing_permission)
    ]


def unreadable_kinds(kinds: Iterable[KindStatus]) -> list[str]:
    """Kinds treated as not served because the permission to read them was always missing."""
    return [
        f"{kind.kind}: not read: {_reason(kind)}"
        for kind in kinds
        if kind.missing_permission and not (kind.required or kind.synced)
    ]


def _reason(kind: KindStatus) -> str:
    if kind.missing_permission:
        return f"the permission to list and watch {kind.missing_permission} is missing"
    return kind.problem or "still reading"


def unreachable_kinds(kinds: Iterable[KindStatus]) -> list[str]:
    """Kinds that were read before, and whose watch has been failing or silent since."""
    return [
        (
            f"{kind.kind}: not read for {kind.age:.0f} s: {_reason(kind)}"
            if kind.missing_permission
            else f"{kind.kind}: unreachable for {kind.age:.0f} s: "
            f"{kind.problem or 'no watch events received'}"
        )
        for kind in kinds
        if kind.api_version
        and kind.synced
        and kind.age > (UNREACHABLE_SECONDS if kind.problem else kind.listed_after + GRACE_SECONDS)
    ]


def stuck_cycle(running_for: float) -> list[str]:
    """The cycle, if it has been running for too long; ``running_for`` in seconds."""
    if running_for <= STUCK_SECONDS:
        return []
    return [f"the scheduling cycle has been running for {running_for:.0f} s"]
