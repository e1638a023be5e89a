"""ResourceClaims and templates in files: the defaults that an API server sets in their requests.

A count of 0 or an allocation mode that is empty or null is one that is not given.
"""

from collections.abc import Iterator

from kai_py.embedded.documents import Json, clone
from kai_py.embedded.kinds.claims import default_device_request
from kai_py.simulate.object_files import ObjectKey
from kai_py.simulate.objects import Document

GROUP = "resource.k8s.io"
CLAIM, TEMPLATE = (GROUP, "ResourceClaim"), (GROUP, "ResourceClaimTemplate")


def default_requests(found: dict[ObjectKey, Document]) -> None:
    """Replace claims and templates that were never applied by such with the defaults set.

    What cannot be read is left to the decoder to refuse.
    """
    for key, document in found.items():
        if key[:2] not in (CLAIM, TEMPLATE) or document["metadata"].get("resourceVersion"):
            continue
        completed = {**document, "spec": clone(document.get("spec"))}
        try:
            for request in _device_requests(key, completed):
                default_device_request(request)
        except (AttributeError, KeyError, TypeError):
            continue
        found[key] = completed


def _device_requests(key: ObjectKey, document: Document) -> Iterator[Json]:
    spec = document["spec"]["spec"] if key[:2] == TEMPLATE else document["spec"]
    for request in (spec.get("devices") or {}).get("requests") or ():
        if request.get("firstAvailable"):
            yield from request["firstAvailable"]
        else:
            yield request.get("exactly") or request  # in v1beta1 the request itself
