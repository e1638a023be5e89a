"""Controller of ephemeral volumes: a pod's volume gets the claim POD-VOLUME of its template.

The claim is the pod's own and goes with it. One of that name that another object owns is left as it
is: the pod cannot use it. Source: pkg/controller/volume/ephemeral of k8s.io/kubernetes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kai_py.embedded.controllers.runtime import Controller, Key, Work, key_of
from kai_py.embedded.documents import (
    clone,
    is_deleting,
    is_finished,
    lookup,
    name_of,
    owner_reference,
)
from kai_py.embedded.event_log import ChangeType
from kai_py.embedded.resources import PODS, VOLUME_CLAIMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kai_py.embedded.apiserver import ApiServer
    from kai_py.embedded.documents import Json
    from kai_py.embedded.event_log import Change


def reconcile(work: Work) -> None:
    """Create the claims for one pod's ephemeral volumes."""
    namespace, name = work.key
    pod = work.api.find(PODS, name, namespace)
    if pod is None or is_deleting(pod) or is_finished(pod):
        return
    for claim in volume_claims(pod):
        if work.api.find(VOLUME_CLAIMS, name_of(claim), namespace) is None:
            work.api.create(VOLUME_CLAIMS, claim, namespace)


def volume_claims(pod: Json) -> Iterator[Json]:
    """The claims of a pod's ephemeral volumes; none for what is no such volume."""
    volumes = pod["spec"].get("volumes")
    for volume in volumes if isinstance(volumes, list) else ():
        name, template = lookup(volume, "name"), lookup(volume, "ephemeral.volumeClaimTemplate")
        if isinstance(name, str) and isinstance(lookup(template, "spec"), dict):
            yield {
                "metadata": {
                    "name": f"{name_of(pod)}-{name}",
                    "labels": clone(lookup(template, "metadata.labels") or {}),
                    "annotations": clone(lookup(template, "metadata.annotations") or {}),
                    "ownerReferences": [owner_reference(pod)],
                },
                "spec": clone(template["spec"]),
            }


def _keys(_api: ApiServer, change: Change) -> Iterable[Key]:
    if change.type is ChangeType.ADDED and any(volume_claims(change.object)):
        yield key_of(change.object)


EPHEMERAL_VOLUME_CONTROLLER = Controller(
    name="ephemeral-volume",
    reconcile=reconcile,
    keys=_keys,
    storages=frozenset({PODS.storage}),
)
