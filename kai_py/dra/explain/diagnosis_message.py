"""One sentence for people from a diagnosis: the first request that can't be allocated, and why.

It says "no device matches selector" where no device passes the selectors of a request, and
"insufficient allocatable devices" where devices pass but too few of them are left.
"""

from collections.abc import Iterable, Sequence

from kai_py.api.records.resource import DeviceConstraint, ResourceClaim
from kai_py.api.texts import count_of
from kai_py.dra.eligibility import DeviceCheck
from kai_py.dra.explain.diagnosis import AllocationDiagnosis, OptionDiagnosis
from kai_py.dra.explain.rejections import ClosestDevice, DeviceRejectionCount
from kai_py.dra.parsed_claims import Option, claim_name

MAX_CAUSES = 4
MAX_QUOTE_LENGTH = 160
"""Longest part of an expression that is quoted."""


def diagnosis_message(diagnosis: AllocationDiagnosis, claims: Sequence[ResourceClaim]) -> str:
    """The sentence for ``claims``, those of the diagnosis or others with equal specs."""
    if diagnosis.budget_exceeded_nodes:
        nodes = count_of(diagnosis.budget_exceeded_nodes, "node")
        return f"search budget exceeded on {nodes}{_pools_text(diagnosis)}"
    blocked = diagnosis.blocked
    if blocked is None:
        combined = _combined_message(diagnosis)
        return f"insufficient allocatable devices: {combined}{_pools_text(diagnosis)}"
    where = f"claim {claim_name(claims[blocked.option.claim])}, request {blocked.option.name}"
    return f"{where}: {_blocked_message(diagnosis, blocked)}{_pools_text(diagnosis)}"


def _blocked_message(diagnosis: AllocationDiagnosis, blocked: OptionDiagnosis) -> str:
    if not diagnosis.devices:
        return "insufficient allocatable devices: no device is published for these nodes"
    counts = _counts_text(diagnosis.devices, blocked.rejected)
    if not blocked.matching:
        return f"no device matches selector: {counts}{_closest_text(blocked.closest)}"
    maximum = "none free"
    if blocked.max_on_one_node:
        maximum = f"at most {blocked.max_on_one_node} on a node"
        maximum += " and not all" if blocked.option.is_all_mode else ""
    return (
        f"insufficient allocatable devices: requested {_requested(blocked.option)}, {maximum}; "
        f"{counts}"
    )


def _requested(option: Option) -> str:
    amount = "all" if option.is_all_mode else str(option.count)
    return f"{amount} of class {option.device_class.metadata.name}"


def _combined_message(diagnosis: AllocationDiagnosis) -> str:
    """Each request finds devices by itself: too few for all requests, or all pods, together."""
    if diagnosis.unmet:
        listed = [_constraint_text(each) for each in diagnosis.unmet[:MAX_CAUSES]]
        return f"enough on a node, but not with {' and '.join(listed)}"
    tightest = min(diagnosis.options, key=lambda each: each.max_on_one_node)
    if diagnosis.fits_one_pod:
        lack = "not enough for more pods"
    elif len(diagnosis.options) > 1:
        lack = "not enough for all requests"
    else:
        lack = "enough on a node, but not together, since devices share counters"
    return (
        f"{lack}, {tightest.free} free, "
        f"at most {tightest.max_on_one_node} on a node; "
        f"{_counts_text(diagnosis.devices, tightest.rejected)}"
    )


def _constraint_text(constraint: DeviceConstraint) -> str:
    if constraint.match_attribute is not None:
        return f"matchAttribute {constraint.match_attribute}"
    return f"distinctAttribute {constraint.distinct_attribute}"


def _counts_text(devices: int, rejected: Sequence[DeviceRejectionCount]) -> str:
    if not rejected:
        return count_of(devices, "device")
    texts = [_rejection_text(each) for each in rejected[:MAX_CAUSES]]
    rest = sum(each.devices for each in rejected[MAX_CAUSES:])
    texts += [f"{rest} for other reasons"] if rest else []
    return f"of {count_of(devices, 'device')} {', '.join(texts)}"


def _rejection_text(rejection: DeviceRejectionCount) -> str:
    cause = _clipped(rejection.cause)
    return f"{rejection.devices} {_CHECK_TEXTS[rejection.check]}{f' {cause}' if cause else ''}"


_CHECK_TEXTS = {
    DeviceCheck.BINDING: "have binding conditions, which are disabled",
    DeviceCheck.CLASS: "fail",
    DeviceCheck.SELECTOR: "fail",
    DeviceCheck.NODE_SELECTION: "are not accessible",
    DeviceCheck.CAPACITY: "have too small a capacity",
    DeviceCheck.NODE_OPERATIONS: "need node operations that the node cannot skip",
    DeviceCheck.PARTITIONS: "are partitions, which are disabled",
    DeviceCheck.TAINT: "tainted",
    DeviceCheck.QUOTA: "beyond the quota",
    DeviceCheck.IN_USE: "in use",
    DeviceCheck.CAPACITY_LEFT: "have insufficient capacity",
    DeviceCheck.GROUPS: "belong to another compatibility group than those in use",
    DeviceCheck.COUNTERS: "have insufficient counters",
    DeviceCheck.CONSTRAINT: "lack the attribute of",
}


def _closest_text(closest: ClosestDevice | None) -> str:
    if closest is None:
        return ""
    has = _joined(f"{name} is {_clipped(value)}" for name, value in closest.values)
    return f"; nearest is {closest.device}{f', where {has}' if has else ''}"


def _pools_text(diagnosis: AllocationDiagnosis) -> str:
    if not diagnosis.faulty:
        return ""
    first, others = diagnosis.faulty[0], len(diagnosis.faulty) - 1
    more = f" and {others} more" if others else ""
    return f"; pool {first.id} {first.status.value} ({first.detail}){more}"


def _joined(parts: Iterable[str]) -> str:
    return " and ".join(parts)


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_QUOTE_LENGTH else f"{text[: MAX_QUOTE_LENGTH - 1]}…"
