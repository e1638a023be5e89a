"""Whether the mirror may be acted on: not older than our own writes, and not silent.

A watch that hangs looks like a quiet one. Two things tell them apart: the server sends bookmarks
about once a minute, and it shows us every write of our own. A kind is *silent* if nothing came of
its watch for ``silence`` seconds, though the reflector reads it again when bookmarks are missing;
it is *behind* if a write of ours has not been shown for ``lag`` seconds. Nothing is decided on a
silent view, and nothing is released, evicted or suspended on one that is silent or behind.

Versions are compared as numbers, as KEP-5504 allows; a binding, whose answer has no version, counts
as shown once the mirror has the pod on a node. A complete list shows every write made before it.
Kinds of other schedulers don't count here: a broken CRD must not stop the whole scheduler.

Source: KEP-5504 (comparable resourceVersions), KEP-956 (bookmarks).
"""

import asyncio
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from kai_py.api.references import PodRef
from kai_py.watch.kinds import (
    DEVICE_CLASSES,
    DISRUPTION_BUDGETS,
    KAI_QUEUES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from kai_py.watch.mirror import Mirror, Progress
from kai_py.watch.resource import Kind

DECIDING: tuple[Kind[Any], ...] = (
    PODS,
    NODES,
    QUEUES,
    KAI_QUEUES,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    DEVICE_CLASSES,
    DISRUPTION_BUDGETS,
)
"""The kinds on which decisions rest."""
DISPENSABLE: tuple[Kind[Any], ...] = (DISRUPTION_BUDGETS, PRIORITY_CLASSES)
"""Those of which what was read last counts while reading them is forbidden: the Eviction API
enforces budgets, and the value of a priority class never changes."""
POLL_SECONDS = 0.02


class KindFreshness(Struct, frozen=True):
    """How far a kind's view may be behind; seconds, 0 while all is well."""

    kind: Kind[Any]
    silent_for: float = 0.0
    behind_for: float = 0.0
    refused: bool = False
    """Whether reading it is forbidden by now."""
    unseen_since: float | None = None
    """When the oldest write was made that is not shown, on the event loop's clock."""


class Freshness:
    """Judges the view of the deciding kinds, on the event loop's clock."""

    def __init__(self, mirror: Mirror, *, silence: float, lag: float) -> None:
        """Times in seconds; see the module."""
        self._mirror, self._silence, self._lag = mirror, silence, lag
        self._unseen_bindings: dict[str, float] = {}
        mirror.subscribe(self._on_pod, PODS)

    def record_binding(self, pod: PodRef) -> None:
        """Expect the watch to show that ``pod`` is on a node."""
        known = self._mirror.objects(PODS).get((pod.namespace, pod.name))
        if known is not None and known.metadata.uid == pod.uid and not known.spec.node_name:
            self._unseen_bindings[pod.uid] = asyncio.get_running_loop().time()

    def measure(self) -> tuple[KindFreshness, ...]:
        """The deciding kinds that have been read."""
        return tuple(self._measure(asyncio.get_running_loop().time()))

    def silent(self) -> list[str]:
        """Kinds that were silent for too long, as sentences."""
        return [
            f"{each.kind.name}: its watch has been silent for {each.silent_for:.0f} s; "
            "nothing is decided until it is read again"
            for each in self.measure()
            if each.silent_for > self._silence and not (each.refused and each.kind in DISPENSABLE)
        ]

    def behind(self) -> list[str]:
        """Kinds that did not show our own writes in time, as sentences."""
        return [
            f"{each.kind.name}: its watch has not shown a write of this process for "
            f"{each.behind_for:.0f} s; nothing is released or evicted until it does"
            for each in self.measure()
            if each.behind_for > self._lag
        ]

    async def catch_up(self) -> str:
        """Wait until the view shows all that we have written so far; returns why it does not."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while stale := self._older_than(began):
            if loop.time() - began > self._lag:
                return f"the watch of {stale} doesn't show the writes of this process"
            await asyncio.sleep(POLL_SECONDS)
        silent = self.silent()
        return silent[0] if silent else ""

    def _older_than(self, moment: float) -> str:
        """A kind that doesn't show yet what we wrote up to ``moment``, or ""."""
        now = asyncio.get_running_loop().time()
        waiting = (
            each.kind.name
            for each in self._measure(now)
            if each.unseen_since is not None and each.unseen_since <= moment
        )
        return next(waiting, "")

    def _measure(self, now: float) -> Iterator[KindFreshness]:
        for kind, progress in self._mirror.progress(DECIDING):
            since = _earliest(progress.unseen_since, self._bindings_since(kind, progress))
            behind = 0.0 if since is None else max(now - since, 0.0)
            yield KindFreshness(kind, now - progress.last, behind, progress.refused, since)

    def _bindings_since(self, kind: Kind[Any], progress: Progress) -> float | None:
        if kind is not PODS:
            return None
        for uid, since in list(self._unseen_bindings.items()):
            if since < progress.listed:
                del self._unseen_bindings[uid]
        return min(self._unseen_bindings.values(), default=None)

    def _on_pod(self, _kind: Kind[Any], old: Any, new: Any) -> None:
        if new is None or new.spec.node_name:
            self._unseen_bindings.pop((old if new is None else new).metadata.uid, None)


def _earliest(*moments: float | None) -> float | None:
    known = [moment for moment in moments if moment is not None]
    return min(known, default=None)
