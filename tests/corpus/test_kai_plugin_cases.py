import json

import numpy as np

from kai_py.api.choices import MinRuntimeMethod
from kai_py.grouping.gang import Subgroup, is_satisfied
from kai_py.policy.fairness_rules import KAI
from kai_py.policy.min_runtime import preempt_min_runtime, reclaim_min_runtime, within_min_runtime
from kai_py.policy.queue_limits import check_deserved, check_limits, check_max
from kai_py.policy.queue_order import order_keys
from kai_py.policy.queue_usage import QueueUsage
from kai_py.policy.reclaim_rules import (
    Reclaimer,
    Victims,
    check_reclaim,
    check_reclaimer,
    guarantees_deserved,
    maintains_fair_share,
    reclaimable_queues,
    stays_within_deserved,
)
from tests.corpus.peer_queues import RESOURCES, amounts, table, vector
from tests.support.records import replace

TABLE = "kai-plugin-cases"
NOW = 1e9


def read_cases(data):
    cases = json.loads((data / f"{TABLE}.json").read_text())
    return {case["id"]: case for case in cases}


def test_case(case):
    answer = CHECKS[case["function"]](case["input"])
    assert answer == case["expected"]


def stand(queues, total=None):
    built = table(queues)
    rows = {key: amounts(built, queues, key) for key in ("allocated", "fair_share")}
    non_preemptible = amounts(built, queues, "allocated_non_preemptible")
    return QueueUsage(built, vector(total), rows["allocated"], non_preemptible, rows["fair_share"])


def reclaimer_of(standing, described):
    queue = standing.queues.positions[described["queue"]]
    return Reclaimer(queue, vector(described["required"]), described["preemptible"])


def can_reclaim_resources(given):
    standing = stand(given["queues"])
    return check_reclaimer(standing, reclaimer_of(standing, given["reclaimer"]), KAI) is None


def reclaimable(given):
    standing = stand(given["queues"])
    taken = [
        (standing.queues.positions[name], vector(amount))
        for name, chunks in sorted((given["reclaimee_resources_by_queue"] or {}).items())
        for amount in chunks or ()
    ]
    victims = victims_of(taken)
    rules = replace(KAI, saturation_multiplier=given["saturation_multiplier"])
    reclaimer = reclaimer_of(standing, given["reclaimer"])
    return check_reclaim(standing, reclaimer, victims, rules) is None


def victims_of(taken):
    queue = np.array([queue for queue, _ in taken], np.int32)
    amount = np.array([amount for _, amount in taken], np.float64).reshape(-1, len(RESOURCES)).T
    return Victims(queue, amount)


def filter_victim(given):
    standing = stand(given["queues"])
    reclaimer = given.get("reclaimer")
    if reclaimer is None or reclaimer["queue"] not in standing.queues.positions:
        return True
    candidates = reclaimable_queues(standing, reclaimer_of(standing, reclaimer), KAI)
    position = standing.queues.positions.get(given["reclaimee_queue"])
    return position is None or bool(candidates[position])


def maintain_fair_share(given):
    standing = stand([given["reclaimee_queue"]])
    holds = vector(given["reclaimee_remaining"])[:, None]
    return bool(maintains_fair_share(holds, standing.allocatable)[0])


def guarantee_deserved(given):
    holds = vector(given["reclaimee_remaining"])[:, None]
    standing = stand([given["reclaimer_queue"]])
    reclaimer = Reclaimer(0, vector(given["reclaimer_required"]), preemptible=True)
    every = np.arange(len(RESOURCES), dtype=np.int32)
    starved = stays_within_deserved(standing, reclaimer, np.zeros(1, np.int32), every)
    deserved = table([given["reclaimee_queue"]]).deserved
    return bool(guarantees_deserved(starved, holds, deserved)[0])


def queue_order(given):
    left, right = given["l_queue"], given["r_queue"]
    standing = stand([left, right], given["total"])
    at = np.array([standing.queues.positions[queue["uid"]] for queue in (left, right)], np.int32)
    request = np.stack([vector(given["l_job_request"]), vector(given["r_job_request"])], axis=1)
    released = np.stack([victim_sum(given["l_victims"]), victim_sum(given["r_victims"])], axis=1)
    keys = order_keys(standing, at, request, KAI, released)
    return -1 if keys[:, 0].tolist() < keys[:, 1].tolist() else 1


def victim_sum(victims):
    return sum((vector(victim.get("allocated", victim)) for victim in victims or ()), vector({}))


def limits(check):
    def verdict(given):
        standing = stand(given["queues"])
        queue = standing.queues.positions[given["job_queue"]]
        refused = check(standing, queue, vector(given["requested"]), given["preemptible"])
        return {
            "schedulable": refused is None,
            "reason": "" if refused is None else str(refused.bound),
        }

    return verdict


def both_limits(standing, queue, request, preemptible):
    return check_limits(standing, queue, request, preemptible=preemptible)


def max_limit(standing, queue, request, preemptible):
    return check_max(standing, queue, request)


def deserved_limit(standing, queue, request, preemptible):
    return None if preemptible else check_deserved(standing, queue, request)


def runtime_rules(given):
    return replace(
        KAI,
        default_preempt_min_runtime=given.get("default_preempt_seconds", 0),
        default_reclaim_min_runtime=given.get("default_reclaim_seconds", 0),
        min_runtime_method=MinRuntimeMethod(given.get("method", "lca")),
    )


def known(given, *named):
    """All queues with those that only the question names; a parent that no queue names is none."""
    queues = {queue["uid"]: queue for queue in (*given["queues"], *named)}
    return [
        queue if queue.get("parent", "") in queues else queue | {"parent": ""}
        for queue in queues.values()
    ]


def preempt_runtime(given):
    if given["queue"] is None:
        return {"error": True, "seconds": given["default_preempt_seconds"]}
    built = table(known(given, given["queue"]))
    seconds = preempt_min_runtime(built, runtime_rules(given))
    return {"error": False, "seconds": seconds[built.positions[given["queue"]["uid"]]]}


def reclaim_runtime(given):
    ours, theirs = given["reclaimer_queue"], given["victim_queue"]
    if ours is None or theirs is None:
        return {"error": True, "seconds": given["default_reclaim_seconds"]}
    built = table(known(given, ours, theirs))
    seconds = reclaim_min_runtime(built, built.positions[ours["uid"]], runtime_rules(given))
    return {"error": False, "seconds": seconds[built.positions[theirs["uid"]]]}


def is_protected(given, victim, *, reclaim):
    built, rules = table(given["queues"]), runtime_rules(given)
    if reclaim:
        pending = built.positions[given["pending_queue"]]
        runtimes = reclaim_min_runtime(built, pending, rules)
    else:
        runtimes = preempt_min_runtime(built, rules)
    started = NOW - victim.get("last_start_age_seconds", np.nan)
    return within_min_runtime(started, runtimes[built.positions[victim["queue"]]], NOW)


def victim_filter(*, reclaim):
    def check(given):
        victim = given["victim"]
        return victim["elastic"] or not is_protected(given, victim, reclaim=reclaim)

    return check


def scenario_validator(*, reclaim):
    def check(given):
        return all(
            not victim["elastic"]
            or not is_protected(given, victim, reclaim=reclaim)
            or loses_only_surplus(victim)
            for victim in given["victims"]
        )

    return check


def loses_only_surplus(victim):
    leaves, gone = victim["pod_sets"], set(victim["evicted_tasks"])
    floors = [Subgroup(name, min_members=leaf["min_available"]) for name, leaf in leaves.items()]
    left = {name: leaf["active"] - len(gone & set(leaf["tasks"])) for name, leaf in leaves.items()}
    return is_satisfied(Subgroup("gang", children=tuple(floors)), left)


CHECKS = {
    "can_reclaim_resources": can_reclaim_resources,
    "reclaimable": reclaimable,
    "filter_victim": filter_victim,
    "strategy_maintain_fair_share": maintain_fair_share,
    "strategy_guarantee_deserved_quota": guarantee_deserved,
    "queue_order": queue_order,
    "is_job_over_queue_capacity": limits(both_limits),
    "is_task_allocation_on_node_over_capacity": limits(both_limits),
    "is_non_preemptible_job_over_quota": limits(deserved_limit),
    "over_limit_check": limits(max_limit),
    "non_preemptible_over_quota_check": limits(deserved_limit),
    "preempt_min_runtime": preempt_runtime,
    "reclaim_min_runtime": reclaim_runtime,
    "preempt_victim_filter": victim_filter(reclaim=False),
    "reclaim_victim_filter": victim_filter(reclaim=True),
    "preempt_scenario_validator": scenario_validator(reclaim=False),
    "reclaim_scenario_validator": scenario_validator(reclaim=True),
}
