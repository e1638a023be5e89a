"""Playing a recorded KAI case: sessions, what they leave behind, and the matcher."""

import copy
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

from kai_py.api.choices import FillStrategy
from kai_py.api.records.resource import AllocationResult
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.actions.registry import ACTIONS as BUILT
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.plan import Action, Plan
from kai_py.plan.session.settings import CycleSettings
from kai_py.policy.fairness_rules import KAI
from kai_py.snapshot.accounting import Accounting
from kai_py.snapshot.snapshot import Snapshot
from tests.corpus.kai_cluster import snapshot_of
from tests.corpus.kai_objects import gpu_rules
from tests.corpus.ties import Renaming, equal_tasks, exchanges, unmatched

ACTIONS = {
    "allocate": Action.ALLOCATE,
    "consolidation": Action.CONSOLIDATE,
    "reclaim": Action.RECLAIM,
    "preempt": Action.PREEMPT,
    "stalegangeviction": Action.STALE,
}
UNLIMITED = 1 << 20


class End(NamedTuple):
    """Where a task stands: its status, node, and groups of GPUs it has a part of.

    ``devices``: what was allocated for it, by claim.
    """

    status: str
    node: str
    groups: tuple[str, ...] = ()
    devices: Mapping[str, list[dict[str, str]]] = {}


Ends = dict[str, End]
"""By task name."""


See = Callable[[Mapping, Accounting], Snapshot]
"""What a cycle sees of the description of a cluster."""


def session(case: Mapping, cluster: Mapping, see: See = snapshot_of) -> Ends:
    """Run the case's actions once on ``cluster``."""
    devices = ClusterDevices(gpu_rules(cluster))
    actions = tuple(a for name in case["actions"] if (a := ACTIONS[name]) in BUILT)
    settings = CycleSettings(
        rules=KAI,
        actions=actions,
        max_relocated_pods=UNLIMITED,
        staleness_grace=case["config"].get("params", {}).get("staleness_grace_seconds", 0.0),
        **strategies(case["config"]["plugins"]),
    )
    snapshot = see(cluster, devices.accounting)
    plan = run_cycle(snapshot, settings, CycleMemory(devices))
    check_ceilings(case, plan)
    return ends(cluster, plan)


def strategies(plugins: str | Mapping | list) -> dict[str, FillStrategy]:
    """What the placement plugins of the case stand for; by default all of them pack."""
    if not isinstance(plugins, list):
        return {}
    named = {p if isinstance(p, str) else p["name"]: p for p in plugins}
    placement = named.get("nodeplacement", {})
    arguments = {} if isinstance(placement, str) else placement.get("arguments", {})
    return {
        "gpu_strategy": FillStrategy(arguments.get("gpu", "binpack")),
        "cpu_strategy": FillStrategy(arguments.get("cpu", "binpack")),
        "sharing_strategy": FillStrategy.SPREAD if "gpuspread" in named else FillStrategy.BINPACK,
    }


def ends(cluster: Mapping, plan: Plan) -> Ends:
    """The state of every task after ``plan``."""
    found = {
        task["name"]: End(task["status"], task.get("node", ""), tuple(task.get("gpu_groups", ())))
        for job in cluster["jobs"]
        for task in job["tasks"]
    }
    for e in plan.evictions:
        status, node = ("Pipelined", e.relocated_to) if e.relocated_to else ("Releasing", e.node)
        found[e.pod.name] = found[e.pod.name]._replace(status=status, node=node)
    found.update({n.pod.name: End("Pipelined", n.node) for n in plan.nominations})
    for pod in (pod for gang in plan.placements for pod in gang.pods):
        groups = tuple(gpu.group for gpu in pod.gpus)
        devices = {each.claim.name: _results(each.allocation) for each in pod.allocate}
        found[pod.pod.name] = End("Binding", pod.node, groups, devices)
    return found


def _results(allocation: AllocationResult) -> list[dict[str, str]]:
    return [
        {"request": r.request, "driver": r.driver, "pool": r.pool, "device": r.device}
        for r in allocation.devices.results
    ]


def check_ceilings(case: Mapping, plan: Plan) -> None:
    """No session may do more than the table allows."""
    limits = case.get("max_calls") or {}
    counts = {
        "binds": sum(len(gang.pods) for gang in plan.placements),
        "evictions": len(plan.evictions),
        "pipelines": len(plan.nominations) + sum(bool(e.relocated_to) for e in plan.evictions),
    }
    for kind, count in counts.items():
        assert count <= limits.get(kind, count), f"{count} {kind}, at most {limits[kind]}"


Run = Callable[[Mapping], Ends]
"""Plays a session on the description of a cluster."""


def sessions_of(case: Mapping, see: See = snapshot_of) -> Run:
    """Plays sessions of the case, but the one on its own cluster, with which all begin, once."""
    begin = cache(lambda: session(case, case["cluster"], see))
    return lambda cluster: begin() if cluster is case["cluster"] else session(case, cluster, see)


def play(case: Mapping, run: Run) -> None:
    """Run the case as its mode says and check what it expects."""
    if case["mode"] == "single":
        found = run(case["cluster"])
        match(case, found)
        if "expected_note" in case:  # words, for which what was recorded stands
            check_recorded(recorded_statuses(case)[1], found)
        return
    cluster = case["cluster"]
    for _ in range(case["rounds"]["until_match"]):
        cluster = carried_over(cluster, run(cluster), promises=True)
    match(case, ends(cluster, Plan()))
    for _ in range(case["rounds"]["after_match"]):
        found = run(cluster)
        match(case, found)
        cluster = carried_over(cluster, found, promises=True)


def play_beside(case: Mapping, run: Run) -> None:
    """Run the sessions that were recorded and check that each leaves every task as it was there."""
    cluster = case["cluster"]
    for _, recorded in sorted(recorded_statuses(case).items()):
        found = run(cluster)
        check_recorded(recorded, found)
        cluster = carried_over(cluster, found)


def recorded_statuses(case: Mapping) -> dict[int, dict[str, str]]:
    """The status of every task at the end of each session that was recorded, by its number."""
    found: dict[int, dict[str, str]] = {}
    last: dict[str, str] = {}
    for recorded in case["actual"]["rounds"]:
        if "end" in recorded:
            last = {name: status for name, (status, *_) in recorded["end"].items()}
        found[recorded["round"]] = last
    return found


def check_recorded(recorded: Mapping[str, str], found: Ends) -> None:
    """Every task ends as it did in the peer's session, also those the table is silent about."""
    for name, status in sorted(recorded.items()):
        assert found[name].status == status, f"{name} is {found[name].status}, was {status}"


def carried_over(cluster: Mapping, found: Ends, *, promises: bool = False) -> Mapping:
    """The description of the next round.

    ``promises``: pods that wait for others to leave keep the node that they were nominated to, as
    ours do; the peer decides again in every session, and so do we after a crash.
    """
    following = copy.deepcopy(cluster)
    for job in following["jobs"]:
        for task in job["tasks"]:
            status, node, groups, _ = found[task["name"]]
            waits = promises and status == "Pipelined" and task["status"] == "Pending"
            task["nominated"] = node if waits else ""
            if status == "Binding":
                status = "Running"
            elif status == "Pipelined" or (
                status == "Releasing" and not job.get("delete_when_evicted")
            ):
                status, node, groups = "Pending", "", ()
            task["status"] = status
            task.pop("node", None)
            task["gpu_groups"] = groups
            if node:
                task["node"] = node
        running = any(task["status"] in ("Running", "Bound") for task in job["tasks"])
        job["last_start_age_seconds"] = 60 if running else None
    for claim in following.get("dra", {}).get("resource_claims", ()):
        _carry_claim(claim, following, found)
    return following


def _carry_claim(claim: dict, following: Mapping, found: Ends) -> None:
    """A pod that has left uses a claim no more; one without users is given back."""
    status = claim.setdefault("status", {})
    tasks = [task for job in following["jobs"] for task in job["tasks"]]
    sharing = [
        task["name"]
        for task in tasks
        if any(use["claim"] == claim["name"] for use in task.get("resource_claims", ()))
    ]
    running = [task["name"] for task in tasks if task.get("node") and task["name"] in sharing]
    others = [user for user in status.get("reserved_for", ()) if user not in sharing]
    status["reserved_for"] = others + running
    results = [r for name in running for r in found[name].devices.get(claim["name"], ())]
    if results:
        status["allocation"] = {"devices": results}
    elif not status["reserved_for"]:
        status.pop("allocation", None)


def match(case: Mapping, found: Ends) -> None:
    """The table's expectation, up to the exchange of equal nodes, domains and pods of a job."""
    wanted = {
        task["name"]: expected
        for job in case["cluster"]["jobs"]
        for task in job["tasks"]
        if (expected := case["expected"].get("jobs", {}).get(job["name"])) is not None
    }
    wanted.update(case["expected"].get("tasks", {}))
    # Some tables name tasks that do not exist; upstream passes over them.
    wanted = {name: expected for name, expected in wanted.items() if name in found}
    problems = (_difference(case, wanted, found, each) for each in exchanges(case["cluster"]))
    first = next(problems)
    assert not first or any(not each for each in problems), first


def _difference(
    case: Mapping, wanted: Mapping[str, Mapping], found: Ends, renaming: Renaming
) -> str:
    """What ends otherwise than wanted with the nodes exchanged; "" if nothing does."""
    for equal in equal_tasks(case["cluster"]):
        names = [name for name in equal if name in wanted]
        asked = [
            (wanted[n]["status"], renaming.get(wanted[n].get("node") or "", "")) for n in names
        ]
        missing = unmatched(asked, [(found[name].status, found[name].node) for name in names])
        if missing:
            are = ", ".join(f"{name} {found[name].status} {found[name].node}" for name in names)
            return f"{are}: not {', '.join(missing)}"
    return ""
