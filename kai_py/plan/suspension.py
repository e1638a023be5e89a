"""Whose Jobs are suspended in place of evicting their pods?

Those that ask for it, or all if so configured, and only for evictions that take the whole gang for
others: a part of a Job can't be suspended, and what is moved goes on elsewhere.
"""

from collections.abc import Mapping

from kai_py.plan.plan import Action
from kai_py.plan.state.statement import Statement
from kai_py.snapshot.gangs import Gang

FOR_OTHERS = (Action.PREEMPT, Action.RECLAIM)


def suspended_gangs(
    statement: Statement, moved: Mapping[str, str], *, by_default: bool
) -> frozenset[str]:
    """Keys of the gangs; ``moved``: pods, by uid, that found room elsewhere."""
    leaving: dict[str, int] = {}
    gangs: dict[str, Gang] = {}
    for uid, victim in statement.evicted.items():
        gang = victim.gang
        if victim.action in FOR_OTHERS and uid not in moved and _wants(gang, by_default=by_default):
            gangs[gang.key] = gang
            leaving[gang.key] = leaving.get(gang.key, 0) + 1
    return frozenset(
        key
        for key, count in leaving.items()
        if count == len(gangs[key].bound)
        and not any(member.pod.uid in statement.placed for member in gangs[key].members)
    )


def _wants(gang: Gang, *, by_default: bool) -> bool:
    is_job = gang.owner.kind == "Job" and gang.owner.api_version.startswith("batch/")
    return is_job and (by_default if gang.suspend is None else gang.suspend)
