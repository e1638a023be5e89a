"""Requests that several kinds of devices satisfy, without the kinds that a queue may not have."""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from kai_py.api.records.resource import DeviceRequest, DeviceSelector, ResourceClaimSpec
from kai_py.dra.parsed_claims import ExcludedKinds
from kai_py.snapshot.accounting import GPU, DeviceRequestSpec

MAX_EXCLUDED = 1_000
"""Kinds that a request may exclude; with more, what is found is only checked against the bounds."""


def order_of_costs(cost: Mapping[str, float]) -> tuple[float, float]:
    """Sorts costs: by GPUs, then by everything together."""
    return cost.get(GPU, 0.0), sum(cost.values())


def excluding(
    request: DeviceRequest, kinds: Callable[[DeviceRequestSpec], Iterable[str]]
) -> DeviceRequest:
    """The request without the ``kinds`` of devices, of each option that does not get *all*."""

    def selectors(option: DeviceRequestSpec) -> tuple[DeviceSelector, ...]:
        if option.allocation_mode == "All":
            return option.selectors
        excluded = tuple(sorted(kinds(option)))
        if not 0 < len(excluded) <= MAX_EXCLUDED:
            return option.selectors
        return (*option.selectors, ExcludedKinds(kinds=excluded))

    exact = request.exactly
    if exact is not None and not exact.admin_access:
        exact = replace(exact, selectors=selectors(exact))
    listed = tuple(replace(a, selectors=selectors(a)) for a in request.first_available)
    return replace(request, exactly=exact, first_available=listed)


def exclude_kinds(specs: Iterable[ResourceClaimSpec]) -> bool:
    """Whether any of the specs excludes kinds of devices."""
    requests = (each for spec in specs for each in spec.devices.requests)
    options = (option for each in requests for option in (each.exactly, *each.first_available))
    selectors = (each for option in options if option is not None for each in option.selectors)
    return any(isinstance(each, ExcludedKinds) for each in selectors)
