"""What operators must know of the kinds that a server serves, logged once per change.

Most kinds may be missing. Without any kind of Queue no gang starts but those of a default queue,
and of kinds that are served in unknown versions no object is known.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Any

from kai_py.watch.discovery import Discovery
from kai_py.watch.kinds import KAI_QUEUES, QUEUES
from kai_py.watch.resource import Kind

logger = logging.getLogger(__name__)


class DiscoveryLog:
    """Compares each discovery with the one before."""

    def __init__(self, kinds: Collection[Kind[Any]]) -> None:
        """``kinds``: those that are looked for."""
        self._wants_queues = QUEUES in kinds
        self._unknown_versions: Mapping[Kind[Any], tuple[str, ...]] = {}
        self._lacks_queues = False

    def tell(self, found: Discovery) -> None:
        """Log what has changed."""
        self._tell_unknown_versions(found.unknown_versions)
        known = (*found.served, *found.unanswered, *found.unknown_versions)
        lacks_queues = self._wants_queues and QUEUES not in known and KAI_QUEUES not in known
        if lacks_queues and not self._lacks_queues:
            logger.warning(
                "the API server serves no Queues (%s): the CRD is not installed, so gangs that "
                "name a queue stay pending; install it with `kai-py crds | kubectl apply -f -`, "
                "no restart is needed",
                QUEUES.permission,
            )
        elif self._lacks_queues and not lacks_queues:
            logger.info("the API server serves Queues now; they are read")
        self._lacks_queues = lacks_queues

    def _tell_unknown_versions(self, found: Mapping[Kind[Any], tuple[str, ...]]) -> None:
        """Warn of kinds whose objects stay unread."""
        for kind, versions in found.items():
            if self._unknown_versions.get(kind) != versions:
                logger.warning(
                    "%s of %s is served in %s, but read only in %s: its objects are not known",
                    kind.name,
                    kind.group,
                    ", ".join(versions),
                    ", ".join(kind.versions),
                )
        self._unknown_versions = found
