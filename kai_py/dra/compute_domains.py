"""Claims on channels of NVIDIA's ComputeDomains, by the domain that their configuration names.

A channel gives a pod access to the GPU memory of the other pods of its domain within one NVLink
clique. The driver reads the domain from the claim's opaque configuration: ``domainID`` of kind
``ComputeDomainChannelConfig``. Source: dra-driver-nvidia-gpu, resource.nvidia.com/v1beta1.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from kai_py.api.records.resource import ResourceClaim, ResourceClaimSpec

DRIVER = "compute-domain.nvidia.com"
CHANNEL_CONFIG = "ComputeDomainChannelConfig"
DAEMON = "daemon"
"""Type of those devices of the driver that are no channels."""


class ComputeDomain(Struct, frozen=True, order=True):
    """A domain of a namespace: others can neither join it nor keep it where they are.

    ``id``: as claims name it. Where they name none, ``gang``, the key of theirs, is the domain.
    """

    namespace: str
    id: str
    gang: str = ""


class _ChannelParameters(msgspec.Struct):
    kind: str = ""
    domain_id: str = msgspec.field(name="domainID", default="")


def domain_id(spec: ResourceClaimSpec) -> str:
    """The domain that a claim on a channel names; "" where it names none that can be read."""
    for each in spec.devices.config:
        if each.opaque is None or each.opaque.driver != DRIVER:
            continue
        try:
            parameters = msgspec.json.decode(each.opaque.parameters, type=_ChannelParameters)
        except (msgspec.DecodeError, RecursionError):
            continue
        if parameters.kind == CHANNEL_CONFIG and parameters.domain_id:
            return parameters.domain_id
    return ""


class ChannelClaims:
    """Allocated claims on channels by the domain that they name, kept in step claim by claim."""

    def __init__(self) -> None:
        """Start without any."""
        self._claims: dict[ComputeDomain, dict[str, ResourceClaim]] = {}

    def add(self, claim: ResourceClaim) -> None:
        """Take in an allocated claim, if it has devices of the driver and names a domain."""
        domain = _domain_of(claim)
        if domain is not None:
            self._claims.setdefault(domain, {})[claim.metadata.name] = claim

    def discard(self, claim: ResourceClaim) -> None:
        """Forget an allocated claim that was taken in."""
        domain = _domain_of(claim)
        if domain is None:
            return
        known = self._claims.get(domain, {})
        known.pop(claim.metadata.name, None)
        if not known:
            self._claims.pop(domain, None)

    def of(self, domain: ComputeDomain) -> Iterable[ResourceClaim]:
        """The allocated claims of a domain."""
        return self._claims.get(domain, {}).values()


def _domain_of(claim: ResourceClaim) -> ComputeDomain | None:
    allocation = claim.status.allocation
    if allocation is None or all(r.driver != DRIVER for r in allocation.devices.results):
        return None
    name = domain_id(claim.spec)
    return ComputeDomain(claim.metadata.namespace, name) if name else None
