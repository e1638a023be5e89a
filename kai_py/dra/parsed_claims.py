"""The claims of one pod, validated and parsed for the search.

Faults found here concern every node alike and stop the pod. The order of checks and the texts are
those of the allocator of Kubernetes 1.37.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from kai_py.api.quantity import QuantityError, parse_quantity
from kai_py.api.records.resource import (
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from kai_py.dra.constraints import Constraint, ConstraintKind
from kai_py.dra.features import Features
from kai_py.dra.identity import AllocationError
from kai_py.snapshot.accounting import DeviceRequestSpec


class ExcludedKinds(DeviceSelector, frozen=True):
    """A selector of narrowed claims: devices of these kinds (``DeviceRow.kind``) do not match."""

    kinds: tuple[str, ...] = ()


class RequestSelector(Struct, frozen=True):
    """A CEL selector and its place for messages: "class C" or "claim NS/X", and #i."""

    expression: str
    owner: str
    position: int

    def __str__(self) -> str:
        return f"{self.owner}: selector #{self.position}"

    @property
    def is_of_class(self) -> bool:
        """Whether the class has the selector, not the claim."""
        return self.owner.startswith("class ")

    @property
    def place(self) -> str:
        """The place without the claim's name: equal claims of other pods share what is counted."""
        return str(self) if self.is_of_class else f"selector #{self.position}"


class DerivedExpression(Struct, frozen=True):
    """An attribute computed from a device for the constraints."""

    name: str
    expression: str


class Option(Struct, frozen=True, eq=False):
    """One way to satisfy a request: the request itself, or one of its alternatives."""

    position: int
    """Among all options of all claims."""
    claim: int
    request: int
    name: str
    """ "request" or "request/alternative", as in results."""
    location: str
    """ "claim NS/X, request R", for messages; R is the alternative, if it is one."""
    device_class: DeviceClass
    selectors: tuple[RequestSelector, ...]
    """The selectors of the class, then those of the request."""
    count: int
    """Devices requested; meaningless with ``is_all_mode``."""
    is_all_mode: bool
    """Allocation mode All."""
    admin_access: bool
    tolerations: tuple[DeviceToleration, ...]
    capacity: Mapping[str, int]
    """Requested capacity in nano-units."""
    derived: tuple[DerivedExpression, ...]
    constraints: tuple[int, ...]
    """Positions of the claim's constraints that apply to this option."""
    excluded: frozenset[str] = frozenset()
    """Kinds of devices that the bounds of the queue exclude."""


class ParsedClaim(Struct, frozen=True, eq=False):
    """One claim; a request is a tuple of options, of which the first feasible one is taken."""

    name: str
    requests: tuple[tuple[Option, ...], ...]
    constraints: tuple[Constraint, ...]
    config: tuple[DeviceClaimConfiguration, ...]


class ParsedClaims(Struct, frozen=True, eq=False):
    """All claims of one pod, allocated together; equal pods may share one."""

    claims: tuple[ParsedClaim, ...]
    options: tuple[Option, ...]
    features: Features

    def alternative_depths(self) -> tuple[int, ...]:
        """By position of the option, how many alternatives of its request come before it."""
        requests = (request for claim in self.claims for request in claim.requests)
        return tuple(depth for request in requests for depth, _ in enumerate(request))


def parse_claims(
    claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass], features: Features
) -> ParsedClaims:
    """Validate ``claims`` against ``classes`` and ``features`` and parse them.

    :raises AllocationError: a claim requests something disabled, unknown or malformed.
    """
    parsed: list[ParsedClaim] = []
    options: list[Option] = []
    for index, claim in enumerate(claims):
        constraints = _constraints(claim)
        requests = []
        for number, request in enumerate(claim.spec.devices.requests):
            position = _RequestPosition(claim, index, number, len(options))
            request_options = _options(position, request, constraints, classes, features)
            options.extend(request_options)
            requests.append(request_options)
        _check_constraint_types(claim)
        parsed.append(
            ParsedClaim(claim_name(claim), tuple(requests), constraints, claim.spec.devices.config)
        )
    return ParsedClaims(tuple(parsed), tuple(options), features)


def claim_name(claim: ResourceClaim) -> str:
    """The name of a claim in messages."""
    namespace = claim.metadata.namespace
    return f"{namespace}/{claim.metadata.name}" if namespace else claim.metadata.name


def _constraints(claim: ResourceClaim) -> tuple[Constraint, ...]:
    return tuple(
        Constraint(
            ConstraintKind.DISTINCT if constraint.match_attribute is None else ConstraintKind.MATCH,
            constraint.match_attribute or constraint.distinct_attribute or "",
            frozenset(constraint.requests),
        )
        for constraint in claim.spec.devices.constraints
    )


def _check_constraint_types(claim: ResourceClaim) -> None:
    for position, constraint in enumerate(claim.spec.devices.constraints):
        if constraint.match_attribute is None and constraint.distinct_attribute is None:
            raise AllocationError(
                f"claim {claim_name(claim)}, constraint #{position}: "
                "empty constraint (unsupported constraint type?)"
            )


class _RequestPosition(Struct, frozen=True):
    """The position of a request in the claims."""

    claim: ResourceClaim
    claim_index: int
    request_index: int
    first_option: int


def _options(
    request_position: _RequestPosition,
    request: DeviceRequest,
    constraints: tuple[Constraint, ...],
    classes: Mapping[str, DeviceClass],
    features: Features,
) -> tuple[Option, ...]:
    claim = claim_name(request_position.claim)
    if request.first_available and not features.prioritized_list:
        raise AllocationError(
            f"claim {claim}, request {request.name}: has subrequests, "
            "but the DRAPrioritizedList feature is disabled"
        )
    alternatives: Sequence[DeviceRequestSpec] = request.first_available or (
        request.exactly or ExactDeviceRequest(),
    )
    options = []
    for position, each in enumerate(alternatives, request_position.first_option):
        name = f"{request.name}/{each.name}" if isinstance(each, DeviceSubRequest) else request.name
        location = f"claim {claim}, request {name.rpartition('/')[2]}"
        _check(each, location, features)
        device_class = _device_class(each, location, classes)
        options.append(
            Option(
                position=position,
                claim=request_position.claim_index,
                request=request_position.request_index,
                name=name,
                location=location,
                device_class=device_class,
                selectors=(
                    *_selectors(f"class {device_class.metadata.name}", device_class.spec.selectors),
                    *_selectors(f"claim {claim}", each.selectors),
                ),
                count=each.count,
                is_all_mode=each.allocation_mode == "All",
                admin_access=_has_admin_access(each),
                tolerations=each.tolerations,
                capacity=_requested_capacity(each, location),
                derived=tuple(
                    DerivedExpression(d.name, d.expression) for d in each.derived_attributes
                ),
                constraints=tuple(
                    index
                    for index, constraint in enumerate(constraints)
                    if constraint.applies_to(name)
                ),
                excluded=frozenset(
                    kind
                    for selector in each.selectors
                    if isinstance(selector, ExcludedKinds)
                    for kind in selector.kinds
                ),
            )
        )
    return tuple(options)


def _check(request: DeviceRequestSpec, location: str, features: Features) -> None:
    if request.capacity.requests and not features.consumable_capacity:
        if isinstance(request, DeviceSubRequest):
            location = location.replace(", request ", ", subrequest ")
        raise AllocationError(
            f"{location}: has capacity requests, but the DRAConsumableCapacity feature is disabled"
        )
    if request.derived_attributes and not features.derived_attributes:
        raise AllocationError(
            f"{location}: cannot handle request with derived attributes, the feature is disabled"
        )
    for position, selector in enumerate(request.selectors):
        if selector.cel is None and not isinstance(selector, ExcludedKinds):
            raise AllocationError(
                f"{location}, selector #{position}: CEL expression empty "
                "(unsupported selector type?)"
            )
    if _has_admin_access(request) and not features.admin_access:
        raise AllocationError(f"{location}: admin access is requested, but the feature is disabled")


def _device_class(
    request: DeviceRequestSpec, location: str, classes: Mapping[str, DeviceClass]
) -> DeviceClass:
    name = request.device_class_name
    if not name:
        raise AllocationError(f"{location}: missing device class name (unsupported request type?)")
    device_class = classes.get(name)
    if device_class is None:
        raise AllocationError(
            f"{location}: could not retrieve device class {name}: "
            f'deviceclass.resource.k8s.io "{name}" not found'
        )
    if request.allocation_mode not in ("ExactCount", "All"):
        raise AllocationError(f"{location}: unsupported count mode {request.allocation_mode}")
    return device_class


def _has_admin_access(request: DeviceRequestSpec) -> bool:
    return isinstance(request, ExactDeviceRequest) and request.admin_access


def _selectors(owner: str, selectors: Sequence[DeviceSelector]) -> tuple[RequestSelector, ...]:
    return tuple(
        RequestSelector(selector.cel.expression if selector.cel else "", owner, position)
        for position, selector in enumerate(selectors)
        if not isinstance(selector, ExcludedKinds)
    )


def _requested_capacity(request: DeviceRequestSpec, location: str) -> dict[str, int]:
    try:
        return {
            name: parse_quantity(amount).nano for name, amount in request.capacity.requests.items()
        }
    except QuantityError as error:
        raise AllocationError(f"{location}: capacity.requests: {error}") from error
