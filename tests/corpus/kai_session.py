"""Playing a recorded KAI case: sessions, what they leave behind, and the matcher."""

import copy
from collections.abc import Mapping

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.cycle import CycleMemory, CycleSettings, run_cycle
from kai_py.plan.decisions import Action, Plan
from kai_py.policy.rules import KAI
from tests.corpus.kai_cluster import snapshot_of

ACTIONS = {
    "allocate": Action.ALLOCATE,
    "consolidation": Action.CONSOLIDATE,
    "reclaim": Action.RECLAIM,
    "preempt": Action.PREEMPT,
    "stalegangeviction": Action.STALE,
}
Ends = dict[str, tuple[str, str]]
"""Task name to (status, node)."""


def session(case: Mapping, cluster: Mapping) -> Ends:
    """Run the case's actions once on ``cluster``."""
    devices = ClusterDevices()
    actions = tuple(ACTIONS[name] for name in case["actions"])
    settings = CycleSettings(rules=KAI, actions=actions)
    snapshot = snapshot_of(cluster, devices.accounting)
    plan = run_cycle(snapshot, settings, CycleMemory(devices))
    check_ceilings(case, plan)
    return ends(cluster, plan)


def ends(cluster: Mapping, plan: Plan) -> Ends:
    """The state of every task after ``plan``."""
    found = {
        task["name"]: (task["status"], task.get("node", ""))
        for job in cluster["jobs"]
        for task in job["tasks"]
    }
    found.update({e.pod.name: ("Releasing", e.node) for e in plan.evictions})
    found.update({n.pod.name: ("Pipelined", n.node) for n in plan.nominations})
    placed = (pod for gang in plan.placements for pod in gang.pods)
    found.update({p.pod.name: ("Binding", p.node) for p in placed})
    return found


def check_ceilings(case: Mapping, plan: Plan) -> None:
    """No session may do more than the table allows."""
    limits = case.get("max_calls") or {}
    counts = {
        "bind": sum(len(gang.pods) for gang in plan.placements),
        "evict": len(plan.evictions),
        "pipeline": len(plan.nominations),
    }
    for kind, count in counts.items():
        assert count <= limits.get(kind, count), f"{count} {kind} calls"


def play(case: Mapping) -> None:
    """Run the case as its mode says and check what it expects."""
    if case["mode"] == "single":
        match(case, session(case, case["cluster"]))
        return
    cluster = case["cluster"]
    for _ in range(case["rounds"]["until_match"]):
        cluster = carried_over(cluster, session(case, cluster))
    match(case, ends(cluster, Plan()))
    for _ in range(case["rounds"]["after_match"]):
        found = session(case, cluster)
        match(case, found)
        cluster = carried_over(cluster, found)


def carried_over(cluster: Mapping, found: Ends) -> Mapping:
    """The description of the next round."""
    following = copy.deepcopy(cluster)
    for job in following["jobs"]:
        for task in job["tasks"]:
            status, node = found[task["name"]]
            if status == "Binding":
                status = "Running"
            elif status == "Pipelined" or (
                status == "Releasing" and not job.get("delete_when_evicted")
            ):
                status, node = "Pending", ""
            task["status"] = status
            task.pop("node", None)
            if node:
                task["node"] = node
        running = any(task["status"] in ("Running", "Bound") for task in job["tasks"])
        job["last_start_age_seconds"] = 60 if running else None
    return following


def match(case: Mapping, found: Ends) -> None:
    """The table's expectation; node names only where it gives them."""
    wanted = {
        task["name"]: expected
        for job in case["cluster"]["jobs"]
        for task in job["tasks"]
        if (expected := case["expected"].get("jobs", {}).get(job["name"])) is not None
    }
    wanted.update(case["expected"].get("tasks", {}))
    for name, expected in sorted(wanted.items()):
        status, node = found[name]
        assert _alike(status, expected["status"]), f"{name} is {status}, not {expected['status']}"
        if expected.get("node"):
            assert node == expected["node"], f"{name} is on {node}, not {expected['node']}"


def _alike(status: str, expected: str) -> bool:
    return status == expected
