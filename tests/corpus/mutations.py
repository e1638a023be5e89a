"""Small changes to recorded clusters, drawn by chance: what else could have been recorded.

Each takes a random source and the description of a cluster and changes it in place; what does not
apply changes nothing.
"""

import copy
import random
from collections.abc import Callable, Iterator, Mapping

Mutation = Callable[[random.Random, dict], None]


def mutated(cluster: Mapping, seed: int) -> dict:
    """A copy of ``cluster`` with one to six changes; the same for the same ``seed``."""
    chance, changed = random.Random(seed), copy.deepcopy(dict(cluster))
    for _ in range(chance.randint(1, 6)):
        chance.choice(MUTATIONS)(chance, changed)
    return changed


def shuffled(cluster: Mapping, seed: int) -> dict:
    """The same cluster, listed in another order."""
    chance, other = random.Random(seed), copy.deepcopy(dict(cluster))
    for kind in ("nodes", "jobs", "queues"):
        chance.shuffle(other[kind])
    return other


def _gpus(chance: random.Random, cluster: dict) -> None:
    has = chance.choice(cluster["nodes"])["allocatable"]
    if "gpu" in has:
        has["gpu"] = max(0, has["gpu"] + chance.choice([-2, -1, 1, 2]))


def _another_node(chance: random.Random, cluster: dict) -> None:
    node = copy.deepcopy(chance.choice(cluster["nodes"]))
    node.pop("legacy_mig_tasks", None)
    cluster["nodes"].append({**node, "name": f"zz{len(cluster['nodes'])}"})


def _no_label(chance: random.Random, cluster: dict) -> None:
    labels = chance.choice(cluster["nodes"])["labels"]
    if labels:
        del labels[chance.choice(sorted(labels))]


def _standing(chance: random.Random, cluster: dict) -> None:
    job = chance.choice(cluster["jobs"])
    job["priority"] = chance.choice([50, 75, 100, 125])
    job["preemptibility"] = chance.choice(["preemptible", "non-preemptible"])
    job["age_minutes"] = chance.randint(1, 60)


def _other_queue(chance: random.Random, cluster: dict) -> None:
    parents = {queue["parent"] for queue in cluster["queues"]}
    leaves = [queue["name"] for queue in cluster["queues"] if queue["name"] not in parents]
    chance.choice(cluster["jobs"])["queue"] = chance.choice(leaves)


def _floor(chance: random.Random, cluster: dict) -> None:
    leaf = chance.choice(list(_leaves(chance.choice(cluster["jobs"])["sub_groups"])))
    leaf["min_available"] = max(0, leaf["min_available"] + chance.choice([-2, -1, 1]))


def _another_job(chance: random.Random, cluster: dict) -> None:
    job = copy.deepcopy(chance.choice(cluster["jobs"]))
    for task in job["tasks"]:
        if not _is_plain(task):
            return
        task.update(name=f"{task['name']}-{len(cluster['jobs'])}", status="Pending", gpu_groups=[])
        task.pop("node", None)
    more = {"name": f"{job['name']}-{len(cluster['jobs'])}", "last_start_age_seconds": None}
    cluster["jobs"].append({**job, **more, "stale_seconds": None})


def _another_pod(chance: random.Random, cluster: dict) -> None:
    job = chance.choice(cluster["jobs"])
    task = copy.deepcopy(chance.choice(job["tasks"]))
    if _is_plain(task):
        name = f"{task['name']}-{len(job['tasks'])}"
        job["tasks"].append({**task, "name": name, "status": "Pending", "gpu_groups": []})
        job["tasks"][-1].pop("node", None)


def _status(chance: random.Random, cluster: dict) -> None:
    task = chance.choice(chance.choice(cluster["jobs"])["tasks"])
    status = chance.choice(["Pending", "Releasing", "Gated", "Succeeded", "StuckInReleasing"])
    if status.endswith("Releasing"):
        task["status"] = status if task["status"] == "Running" else task["status"]
    elif _is_plain(task):
        task.update(status=status, gpu_groups=[])
        task.pop("node", None)


def _size(chance: random.Random, cluster: dict) -> None:
    task = chance.choice(chance.choice(cluster["jobs"])["tasks"])
    if task.get("node"):
        return
    if task["request_type"] == "Fraction":
        task["gpu_request"].update(portion=chance.choice([0.1, 0.5, 0.9]), devices=1)
    elif task["request"].get("gpu") and task["request_type"] == "Regular":
        task["request"]["gpu"] = chance.randint(1, 4)


def _quota(chance: random.Random, cluster: dict) -> None:
    gpu = chance.choice(cluster["queues"])["gpu"]
    field = chance.choice(["quota", "limit", "over_quota_weight"])
    gpu[field] = chance.choice([0, 1, 2, 3, 8] if field == "over_quota_weight" else [-1, 0, 1, 4])


def _queue_order(chance: random.Random, cluster: dict) -> None:
    chance.choice(cluster["queues"])["priority"] = chance.choice([50, 100, 200])
    one, other = (chance.choice(cluster["queues"]) for _ in range(2))
    ranks = one["creation_rank"], other["creation_rank"]
    other["creation_rank"], one["creation_rank"] = ranks


def _topology(chance: random.Random, cluster: dict) -> None:
    if not cluster.get("topologies"):
        return
    topology = chance.choice(cluster["topologies"])
    levels = [each if isinstance(each, str) else each["label"] for each in topology["levels"]]
    group = chance.choice(cluster["jobs"])["sub_groups"]
    bounds = {name: chance.choice(levels) for name in ("required_level", "preferred_level")}
    kept = chance.choice(sorted(bounds))
    group["topology_constraint"] = {"topology": topology["name"], kept: bounds[kept]}


def _leaves(group: Mapping) -> Iterator[dict]:
    yield from group.get("pod_sets", ())
    for child in group.get("children", ()):
        yield from _leaves(child)


def _is_plain(task: Mapping) -> bool:
    """Whether it is nothing that was prepared elsewhere in the description."""
    named = task.get("resource_claims") or task.get("legacy_mig")
    return not named and "dra" not in task["gpu_request"]


MUTATIONS: tuple[Mutation, ...] = (
    _gpus,
    _another_node,
    _no_label,
    _standing,
    _other_queue,
    _floor,
    _another_job,
    _another_pod,
    _status,
    _size,
    _quota,
    _queue_order,
    _topology,
)
