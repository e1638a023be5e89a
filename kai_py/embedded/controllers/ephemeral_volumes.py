"""Controller of ephemeral volumes: a pod's volume gets the claim POD-VOLUME of its template.

The claim is the pod's own and goes with it. One of that name that another object owns is left as it
is: the pod cannot use it. Source: pkg/controller/volume/ephemeral of k8s.io/kubernetes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kai_py.embedded.controllers.owned_pods import is_finished
from kai_py.embedded.controllers.runtime import Controller, Key, Work, key_of
from kai_py.embedded.documents import clone, is_deleting, owner_reference
from kai_py.embedded.event_log import ChangeType
from kai_py.embedded.resources import PODS, VOLUME_CLAIMS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kai_py.embedded.apiserver import ApiServer
    from kai_py.embedded.documents import Json
    from kai_py.embedded.event_log import Change


def reconcile(work: Work) -> None:
    """Create the claims for one pod's ephemeral volumes."""
    namespace, name = work.key
    pod = work.api.find(PODS, name, namespace)
    if pod is None or is_deleting(pod) or is_finished(pod):
        return
    for volume in _ephemeral(pod):
        claim_name = f"{name}-{volume['name']}"
        if work.api.find(VOLUME_CLAIMS, claim_name, namespace) is not None:
            continue
        template = clone(volume["ephemeral"]["volumeClaimTemplate"])
        meta = template.get("metadata") or {}
        claim = {
            "metadata": {
                "name": claim_name,
                "labels": meta.get("labels") or {},
                "annotations": meta.get("annotations") or {},
                "ownerReferences": [owner_reference(pod)],
            },
            "spec": template.get("spec") or {},
        }
        work.api.create(VOLUME_CLAIMS, claim, namespace)


def _ephemeral(pod: Json) -> list[Json]:
    volumes = pod["spec"].get("volumes") or ()
    return [each for each in volumes if (each.get("ephemeral") or {}).get("volumeClaimTemplate")]


def _keys(_api: ApiServer, change: Change) -> Iterable[Key]:
    if change.type is ChangeType.ADDED and _ephemeral(change.object):
        yield key_of(change.object)


EPHEMERAL_VOLUME_CONTROLLER = Controller(
    name="ephemeral-volume",
    reconcile=reconcile,
    keys=_keys,
    storages=frozenset({PODS.storage}),
)
