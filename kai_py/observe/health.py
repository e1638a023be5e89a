"""Is the scheduler well, and is it ready? Sentences that say what is wrong; none when all is well.

A watch that has not heard of its server for ``STALE_SECONDS`` is stale: bookmarks come about once
a minute, so three of them are missing. One that fails for ``UNREACHED_SECONDS``, or hears nothing
for ``SILENT_SECONDS``, makes the process unready, not unwell: what it knows grows old, and a
restart would not help. A cycle that runs for
``STUCK_SECONDS`` is stuck. An event loop that hangs answers no probe at all, which is its own
verdict.
"""

from collections.abc import Iterable

from kai_py.watch.mirror import KindStatus

STALE_SECONDS = 180.0
IDLE_WATCH_SECONDS = 120.0
UNREACHABLE_SECONDS = 5.0
STUCK_SECONDS = 120.0


def stale_watches(kinds: Iterable[KindStatus]) -> list[str]:
    """Kinds that are served and whose watch hears nothing."""
    return [
        f"{kind.kind}: nothing heard for {kind.age:.0f} s: {kind.problem or 'no error'}"
        for kind in kinds
        if kind.api_version and kind.age > STALE_SECONDS and not kind.missing_permission
    ]


def unsynced_kinds(kinds: Iterable[KindStatus]) -> list[str]:
    """Kinds whose first list is waited for."""
    return [
        f"{kind.kind}: not read yet: {_reason(kind)}"
        for kind in kinds
        if not kind.synced and (kind.required or not kind.missing_permission)
    ]


def unreadable_kinds(kinds: Iterable[KindStatus]) -> list[str]:
    """Kinds that count as not served because we may not read them."""
    return [
        f"{kind.kind}: goes unread: {_reason(kind)}"
        for kind in kinds
        if kind.missing_permission and not kind.required
    ]


def _reason(kind: KindStatus) -> str:
    if kind.missing_permission:
        return f"the permission to list and watch {kind.missing_permission} is missing"
    return kind.problem or "still reading"


def unreachable_kinds(kinds: Iterable[KindStatus]) -> list[str]:
    """Kinds that were read and whose watch has been failing since, or is silent."""
    return [
        f"{kind.kind}: not reached for {kind.age:.0f} s: {kind.problem or 'the watch is silent'}"
        for kind in kinds
        if kind.api_version
        and kind.synced
        and kind.age > (UNREACHABLE_SECONDS if kind.problem else IDLE_WATCH_SECONDS)
    ]


def stuck_cycle(running_for: float) -> list[str]:
    """The cycle, when it has been running for too long; ``running_for`` in seconds."""
    if running_for <= STUCK_SECONDS:
        return []
    return [f"the scheduling cycle has been running for {running_for:.0f} s"]
