"""The claims that are charged to the gang of a pod, of those that have no devices yet."""

from collections.abc import Callable, Mapping

from kai_py.api.records.resource import AllocationResult, ResourceClaimSpec
from kai_py.api.references import ClaimRef
from kai_py.snapshot.accounting import Accounting, total
from kai_py.snapshot.gangs import Member


def own_claims(
    member: Member,
    accounting: Accounting,
    allocation_of: Callable[[ClaimRef], AllocationResult | None],
) -> Mapping[ClaimRef, ResourceClaimSpec]:
    """The unallocated claims that are charged to the gang of a pod.

    A claim that the pod names may be shared, and charged to another pod: it is this pod's own
    if the pod's charge includes its devices.
    """
    group = member.group_reservation.claims if member.group_reservation is not None else ()
    uses = dict(zip(member.claims, member.shape.claims, strict=False))
    found = {
        ref: use.spec
        for ref, use in uses.items()
        if (use.claim is None or ref in group) and allocation_of(ref) is None
    }
    left = dict(member.charge)
    counted = [accounting.claim_spec(found[ref]) for ref in found if ref not in group]
    counted.append(accounting.extended(member.shape.extended.requests))
    for name, amount in total(counted).items():
        left[name] = left.get(name, 0.0) - amount
    for ref, use in uses.items():
        cost = accounting.claim_spec(use.spec)
        if ref in found or ref in group or allocation_of(ref) is not None or not cost:
            continue
        if all(left.get(name, 0.0) >= amount for name, amount in cost.items()):
            found[ref] = use.spec
            left.update({name: left[name] - amount for name, amount in cost.items()})
    return found
