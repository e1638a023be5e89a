"""One sentence for people from a device funnel: the first request that stops its claim, and why.

"no device matches selector" stands where no device passes the selectors of a request, "insufficient
allocatable devices" where devices pass but too few of them are left.
"""

from collections.abc import Iterable, Sequence

from kai_py.api.records.resource import ResourceClaim
from kai_py.dra.claims import Option, claim_name
from kai_py.dra.funnel import Funnel, OptionFunnel
from kai_py.dra.selection import Step
from kai_py.dra.selector_funnel import Nearest, Removal

CAUSES_TOLD = 4
TEXT_LENGTH = 160
"""Longest piece of an expression that is quoted."""


def tell(funnel: Funnel, claims: Sequence[ResourceClaim]) -> str:
    """Say what stops ``claims``, the ones the funnel was made for or others like them."""
    if funnel.undecided:
        return f"no answer within the budget of the search on {funnel.undecided} nodes" + _pools(
            funnel
        )
    blocked = _blocked(funnel)
    if blocked is None:
        return f"insufficient allocatable devices: {_together(funnel)}{_pools(funnel)}"
    where = f"claim {claim_name(claims[blocked.option.claim])}, request {blocked.option.name}"
    return f"{where}: {_verdict(funnel, blocked)}{_pools(funnel)}"


def _blocked(funnel: Funnel) -> OptionFunnel | None:
    """Return the first option of the first request of which no option finds enough devices."""
    by_request: dict[tuple[int, int], list[OptionFunnel]] = {}
    for each in funnel.options:
        by_request.setdefault((each.option.claim, each.option.request), []).append(each)
    stuck = (o for o in by_request.values() if not any(each.suffices for each in o))
    return next((options[0] for options in stuck), None)


def _verdict(funnel: Funnel, blocked: OptionFunnel) -> str:
    if not funnel.devices:
        return "insufficient allocatable devices: no device is published for these nodes"
    counts = _of(funnel.devices, blocked.removed)
    if not blocked.matching:
        return f"no device matches selector: {counts}{_nearest(blocked.nearest)}"
    most = f"at most {blocked.most} on a node" if blocked.most else "none left"
    return f"insufficient allocatable devices: wants {_wanted(blocked.option)}, {most}; {counts}"


def _wanted(option: Option) -> str:
    amount = "all" if option.everything else str(option.count)
    return f"{amount} of class {option.device_class.metadata.name}"


def _together(funnel: Funnel) -> str:
    """Each request finds devices by itself: too few for all requests, or all pods, together."""
    tightest = min(funnel.options, key=lambda each: each.most)
    claimed = "together" if len(funnel.options) > 1 else "for more pods"
    return (
        f"not enough {claimed}, {tightest.free} free, at most {tightest.most} on a node; "
        f"{_of(funnel.devices, tightest.removed)}"
    )


def _of(devices: int, removed: Sequence[Removal]) -> str:
    noun = "device" if devices == 1 else "devices"
    if not removed:
        return f"{devices} {noun}"
    told = [_removal(each) for each in removed[:CAUSES_TOLD]]
    rest = sum(each.devices for each in removed[CAUSES_TOLD:])
    told += [f"{rest} for other reasons"] if rest else []
    return f"of {devices} {noun} {', '.join(told)}"


def _removal(removal: Removal) -> str:
    cause = _clipped(removal.cause)
    return f"{removal.devices} {_SAYS[removal.step]}{f' {cause}' if cause else ''}"


_SAYS = {
    Step.BINDING: "have binding conditions, which are switched off",
    Step.CLASS: "fail",
    Step.SELECTOR: "fail",
    Step.REACH: "cannot be reached",
    Step.CAPACITY: "are too small",
    Step.NODE_OPERATIONS: "need node operations that the node cannot skip",
    Step.PARTITIONS: "are partitions, which are switched off",
    Step.TAINT: "tainted",
    Step.IN_USE: "in use",
    Step.CAPACITY_LEFT: "have too little capacity left",
    Step.GROUPS: "belong to another compatibility group than those in use",
    Step.COUNTERS: "out of counters",
    Step.CONSTRAINT: "break a constraint",
}


def _nearest(nearest: Nearest | None) -> str:
    if nearest is None:
        return ""
    has = _listed(f"{name} is {_clipped(value)}" for name, value in nearest.values)
    return f"; nearest is {nearest.device}{f', where {has}' if has else ''}"


def _pools(funnel: Funnel) -> str:
    if not funnel.faulty:
        return ""
    first, others = funnel.faulty[0], len(funnel.faulty) - 1
    more = f" and {others} more" if others else ""
    return f"; pool {first.id} {first.status.value} ({first.detail}){more}"


def _listed(parts: Iterable[str]) -> str:
    return " and ".join(parts)


def _clipped(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH else f"{text[: TEXT_LENGTH - 1]}…"
