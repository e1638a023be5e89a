"""Activity log: what the scheduler does, as log records with fields to filter by.

One record for each gang placed, for each gang that loses pods (with the rule, the preemptor and the
numbers that decided), and for each change of a queue.
"""

import logging
from collections.abc import Iterable, Mapping

from msgspec import structs

from kai_py.observe.decision_log import Decision, DecisionKind
from kai_py.plan.extensions import queue_key, step_key
from kai_py.plan.observations import SetAside
from kai_py.plan.plan import Plan
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.tables.queues import NamespaceRule, QueueInfo

log = logging.getLogger(__name__)

MAX_NODES = 32
"""Nodes named in one record; ``node_count`` counts all."""
NOT_CONFIGURED = frozenset({"name", "created", "api_version", "problems", "usage", "evictions"})
"""Fields of a queue that its user did not write: a change of them is no change of the queue."""


def log_decisions(
    decisions: Iterable[Decision], gangs: Mapping[str, Gang], cycle: int, now: float
) -> None:
    """Record the decisions of a cycle that are being carried out; ``gangs`` by key."""
    for decision in decisions:
        if decision.kind is DecisionKind.PLACED:
            fields_of = _fields(decision, cycle) | _waited(gangs.get(decision.gang), now)
            log.info("gang %s: placed", decision.gang, extra={"fields": fields_of})
        elif decision.kind is DecisionKind.EVICTED:
            fields_of = _fields(decision, cycle) | _preemptor(decision)
            fields_of["reason"] = decision.message
            log.info("gang %s: evicted", decision.gang, extra={"fields": fields_of})


def log_queue_change(before: QueueInfo | None, after: QueueInfo | None) -> None:
    """Record that a queue was created, changed or deleted; None: there is none."""
    queue = after or before
    if queue is None:
        return
    if after is None:
        log.info("queue %s: deleted", queue.name, extra={"fields": {"queue": queue.name}})
        return
    former, written = _written(before), _written(after)
    changes = {
        name: new if before is None else f"{_text(former[name])} -> {_text(new)}"
        for name, new in written.items()
        if new != former[name]
    }
    if changes or before is None:
        what = "created" if before is None else "changed"
        details = {"queue": queue.name, **changes}
        log.info("queue %s: %s", queue.name, what, extra={"fields": details})


def _written(queue: QueueInfo | None) -> dict[str, object]:
    """The settings of a queue as plain values; the defaults for None."""
    of = queue or QueueInfo(name="")
    values = structs.asdict(of)
    return {
        name: structs.asdict(value) if isinstance(value, NamespaceRule) else value
        for name, value in values.items()
        if name not in NOT_CONFIGURED
    }


def _text(value: object) -> str:
    """A setting in words: ``gpu=8 cpu=64`` for amounts, ``-`` for none."""
    match value:
        case Mapping():
            return " ".join(f"{key}={_text(each)}" for key, each in value.items()) or "-"
        case list() | tuple():
            return " ".join(map(_text, value)) or "-"
        case float() if value.is_integer():
            return str(int(value))
        case None | "":
            return "-"
    return str(value)


def _preemptor(decision: Decision) -> dict[str, object]:
    """For which gang it was evicted; nothing where it leaves a node by itself."""
    if decision.preemptor == decision.gang:
        return {}
    return {"preemptor": decision.preemptor, "preemptor_queue": decision.preemptor_queue}


def _fields(decision: Decision, cycle: int) -> dict[str, object]:
    return {
        "gang": decision.gang,
        "queue": decision.queue,
        "rule": decision.action,
        "cycle": cycle,
        "pods": len(decision.pods),
        "node_count": len(decision.nodes),
        "nodes": decision.nodes[:MAX_NODES],
    }


def _waited(gang: Gang | None, now: float) -> dict[str, object]:
    if gang is None:
        return {}
    since = max(gang.waiting_since, gang.settings.last_evicted or 0.0)
    return {"seconds": round(max(now - since, 0.0), 3)}


def _kind_of(key: str) -> str:
    """The noun for the part that a key names, for keys that are not those of gangs."""
    if key.startswith(queue_key("")):
        return "a queue"
    return "a step of the cycle" if key.startswith(step_key("")) else "an extension"


class SetAsideLog:
    """One record when a gang, score or action fails, not one for each cycle in which it does."""

    def __init__(self) -> None:
        """Nothing has failed yet."""
        self._logged: dict[str, str] = {}

    def record(self, plan: Plan) -> None:
        """Log what failed in the cycle and did not fail in the same way in the one before."""
        for each in plan.set_aside:
            self._record("a gang", "gang", each)
        for each in plan.failed_extensions:
            self._record(_kind_of(each.gang), "extension", each)
        failed = (*plan.set_aside, *plan.failed_extensions)
        self._logged = {each.gang: each.message for each in failed}

    def _record(self, what: str, field: str, each: SetAside) -> None:
        if self._logged.get(each.gang) != each.message:
            fields = {field: each.gang, **({"exception": each.error} if each.error else {})}
            log.error("%s is set aside: %s", what, each.message, extra={"fields": fields})
