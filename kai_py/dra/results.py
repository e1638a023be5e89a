"""Allocation results for ``status.allocation`` of each claim, from the chosen devices.

Class configuration comes first, once per class, for the requests that use it; then the claim's
configuration that names a request, or the alternative taken. A list that covers all requests is
left empty. The node selector pins the node when any device is local to it, else it combines the
node selectors of the devices' slices.
"""

import uuid
from collections.abc import Hashable, Iterable, Iterator, Sequence

from kai_py.api.groups import grouped
from kai_py.api.records.core import NodeSelector, NodeSelectorTerm, SelectorRequirement
from kai_py.api.records.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ExactDeviceRequest,
    ResourceClaim,
)
from kai_py.dra.capacity import format_amount
from kai_py.dra.eligibility import Eligibility
from kai_py.dra.features import Features
from kai_py.dra.identity import AllocationError
from kai_py.dra.inventory import NodeDevices
from kai_py.dra.parsed_claims import Option, ParsedClaim
from kai_py.dra.rows import DeviceRow
from kai_py.dra.search_state import DevicePick
from kai_py.snapshot.accounting import DeviceRequestSpec

SHARE_IDS = uuid.UUID("6e1b1a4e-3d2f-5c58-9d36-0b7a4c1f2e90")
"""UUID namespace of share ids, which are derived from claim, request and device."""


def build_allocations(
    claims: Sequence[ResourceClaim],
    eligibility: Eligibility,
    view: NodeDevices,
    picks: Sequence[DevicePick],
) -> tuple[AllocationResult, ...]:
    """One allocation per claim; ``picks`` are positions in ``view``.

    :raises AllocationError: a slice's node selector has more than one term.
    """
    by_claim: list[list[DevicePick]] = [[] for _ in claims]
    for pick in picks:
        by_claim[eligibility.claims.options[pick.option].claim].append(pick)
    return tuple(
        _allocation(claim, parsed, eligibility, view, claim_picks)
        for claim, parsed, claim_picks in zip(
            claims, eligibility.claims.claims, by_claim, strict=True
        )
    )


def _allocation(
    claim: ResourceClaim,
    parsed: ParsedClaim,
    eligibility: Eligibility,
    view: NodeDevices,
    picks: Sequence[DevicePick],
) -> AllocationResult:
    options = eligibility.claims.options
    chosen = {options[pick.option].request: options[pick.option] for pick in picks}
    rows = [view.rows[pick.device] for pick in picks]
    return AllocationResult(
        devices=DeviceAllocationResult(
            results=tuple(
                _result(claim, options[pick.option], row, pick, eligibility.claims.features)
                for pick, row in zip(picks, rows, strict=True)
            ),
            config=tuple(_config(parsed, [chosen[request] for request in sorted(chosen)])),
        ),
        node_selector=_node_selector(parsed.name, view, rows),
    )


def _result(
    claim: ResourceClaim, option: Option, row: DeviceRow, pick: DevicePick, features: Features
) -> DeviceRequestAllocationResult:
    shared = features.consumable_capacity and row.shareable
    binding = features.device_binding_and_status
    requests = _request_spec(claim, option).capacity.requests if pick.consumed else {}
    return DeviceRequestAllocationResult(
        request=option.name,
        driver=row.id.driver,
        pool=row.id.pool,
        device=row.id.device,
        admin_access=option.admin_access,
        tolerations=option.tolerations,
        binding_conditions=row.device.binding_conditions if binding else (),
        binding_failure_conditions=row.device.binding_failure_conditions if binding else (),
        share_id=_share_id(claim, option, row) if shared else "",
        consumed_capacity={
            name: format_amount(row.device.capacity[name], requests.get(name), amount)
            for name, amount in pick.consumed
        },
        skip_node_operations=row.skip_node_operations,
    )


def _request_spec(claim: ResourceClaim, option: Option) -> DeviceRequestSpec:
    """The request of ``option``, or the alternative that it is."""
    request = claim.spec.devices.requests[option.request]
    alternatives = {f"{request.name}/{each.name}": each for each in request.first_available}
    return alternatives.get(option.name) or request.exactly or ExactDeviceRequest()


def _share_id(claim: ResourceClaim, option: Option, row: DeviceRow) -> str:
    owner = claim.metadata.uid or f"{claim.metadata.namespace}/{claim.metadata.name}"
    return str(uuid.uuid5(SHARE_IDS, f"{owner}/{option.name}/{row.id}"))


def _config(
    parsed: ParsedClaim, chosen: Sequence[Option]
) -> Iterator[DeviceAllocationConfiguration]:
    by_class = grouped(chosen, lambda option: option.device_class.metadata.name)
    for options in by_class.values():
        names = _unless_all(tuple(option.name for option in options), chosen)
        for config in options[0].device_class.spec.config:
            yield DeviceAllocationConfiguration(
                source="FromClass",
                requests=names,
                opaque=config.opaque,
            )
    for config_entry in parsed.config:
        named = [option for option in chosen if _applies_to(config_entry.requests, option)]
        if config_entry.requests and not named:
            continue
        yield DeviceAllocationConfiguration(
            source="FromClaim",
            requests=_unless_all(config_entry.requests, chosen),
            opaque=config_entry.opaque,
        )


def _unless_all(requests: tuple[str, ...], chosen: Sequence[Option]) -> tuple[str, ...]:
    """Names of requests; none, which means all, where they cover every request of the claim."""
    return () if all(_applies_to(requests, option) for option in chosen) else requests


def _applies_to(requests: Sequence[str], option: Option) -> bool:
    return option.name in requests or option.name.partition("/")[0] in requests


def _node_selector(claim: str, view: NodeDevices, rows: Sequence[DeviceRow]) -> NodeSelector | None:
    if any(row.pinned_to_node for row in rows):
        name = SelectorRequirement(
            key="metadata.name", operator="In", values=(view.node.metadata.name,)
        )
        return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(name,)),))
    terms = [term for row in rows if (term := _only_term(claim, row)) is not None]
    union = NodeSelectorTerm(
        match_expressions=_distinct(each for term in terms for each in term.match_expressions),
        match_fields=_distinct(each for term in terms for each in term.match_fields),
    )
    if not union.match_expressions and not union.match_fields:
        return None
    return NodeSelector(node_selector_terms=(union,))


def _distinct(requirements: Iterable[SelectorRequirement]) -> tuple[SelectorRequirement, ...]:
    """Each requirement once, whatever the order of its values."""
    found: dict[Hashable, SelectorRequirement] = {}
    for each in requirements:
        found.setdefault((each.key, each.operator, frozenset(each.values)), each)
    return tuple(found.values())


def _only_term(claim: str, row: DeviceRow) -> NodeSelectorTerm | None:
    if row.reach.selector is None:
        return None
    terms = row.reach.selector.node_selector_terms
    if len(terms) != 1:
        raise AllocationError(
            f"create NodeSelector for claim {claim}: unsupported ResourceSlice.NodeSelector "
            f"with {len(terms)} terms"
        )
    return terms[0]
