"""A plan as text: one line per decision, in the order in which they were made."""

from collections.abc import Iterator

from kai_py.api.texts import count_of, printable
from kai_py.plan.plan import GangPlacement, Placement, Plan


def describe_plan(plan: Plan) -> str:
    """The plan as text; every line begins with the action."""
    return "\n".join(map(printable, _lines(plan))) or "nothing to do"


def _lines(plan: Plan) -> Iterator[str]:
    for gang in plan.placements:
        yield f"place {gang.gang} (queue {gang.queue}, {gang.action}): {_nodes(gang)}"
        for placement in gang.pods:
            yield f"  {placement.pod} -> {placement.node}{_devices(placement)}"
    for eviction in plan.evictions:
        yield f"evict {eviction.pod} from {eviction.node} ({eviction.action}): {eviction.reason}"
    for nomination in plan.nominations:
        yield f"nominate {nomination.pod} -> {nomination.node} (gang {nomination.gang})"
    for unplaced in plan.unplaced:
        label = f"{unplaced.gang} (queue {unplaced.queue}, {unplaced.stage})"
        yield f"pending {label}: {unplaced.message}"


def _nodes(gang: GangPlacement) -> str:
    nodes = {placement.node for placement in gang.pods}
    return f"{count_of(len(gang.pods), 'pod')} on {count_of(len(nodes), 'node')}"


def _devices(placement: Placement) -> str:
    devices = [
        f"{result.pool}/{result.device}"
        for new in placement.allocate
        for result in new.allocation.devices.results
    ]
    return f" with {', '.join(devices)}" if devices else ""
