"""What a recorded case has alike, so that exchanging it changes nothing: nodes, domains, pods.

Nodes are equal if they have the same resources and labels, and pods of the same jobs are on them.
Values of labels may differ if the exchange renames them alike on all nodes, as names of nodes and
of domains. Where a task names labels of nodes, nothing is exchanged.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, permutations, product

MAX_EXCHANGES = 2_000

Renaming = Mapping[str, str]
"""By node of the case the node that stands for it."""


def exchanges(cluster: Mapping) -> Iterator[Renaming]:
    """The exchanges of equal nodes, the one that changes nothing first."""
    nodes = {node["name"]: node for node in cluster["nodes"]}
    # Most cases need no other one, and the product begins with all permutations in memory.
    yield {name: name for name in nodes}
    tasks = [task for job in cluster["jobs"] for task in job["tasks"]]
    if any(task.get("node_affinity") or task.get("node_selector") for task in tasks):
        return
    classes: dict[str, list[str]] = defaultdict(list)
    for name, node in nodes.items():
        classes[_class_of(node, cluster)].append(name)
    groups = list(classes.values())
    for chosen in islice(product(*map(permutations, groups)), 1, MAX_EXCHANGES):
        renaming = {
            name: other
            for group, order in zip(groups, chosen, strict=True)
            for name, other in zip(group, order, strict=True)
        }
        if _renames_labels_alike(nodes, renaming):
            yield renaming


def equal_tasks(cluster: Mapping) -> list[list[str]]:
    """Names of the tasks of a job that are equal at first."""
    found: dict[str, list[str]] = defaultdict(list)
    for job in cluster["jobs"]:
        for task in job["tasks"]:
            described = {key: value for key, value in task.items() if key != "name"}
            found[job["name"] + json.dumps(described, sort_keys=True)].append(task["name"])
    return list(found.values())


def _class_of(node: Mapping, cluster: Mapping) -> str:
    described = {key: value for key, value in node.items() if key not in ("name", "labels")}
    described.pop("legacy_mig_tasks", None)
    on_it = sorted(
        (job["name"], json.dumps({**task, "name": "", "node": ""}, sort_keys=True))
        for job in cluster["jobs"]
        for task in job["tasks"]
        if task.get("node") == node["name"]
    )
    return json.dumps([described, sorted(node.get("labels") or ()), on_it], sort_keys=True)


def _renames_labels_alike(nodes: Mapping[str, Mapping], renaming: Renaming) -> bool:
    """Whether every label's values are mapped one to one."""
    there: dict[tuple[str, str], str] = {}
    back: dict[tuple[str, str], str] = {}
    for name, other in renaming.items():
        theirs = nodes[other].get("labels") or {}
        for key, value in (nodes[name].get("labels") or {}).items():
            if there.setdefault((key, value), theirs[key]) != theirs[key]:
                return False
            if back.setdefault((key, theirs[key]), value) != value:
                return False
    return True


def unmatched(wanted: Iterable[tuple[str, str]], found: Iterable[tuple[str, str]]) -> list[str]:
    """What is wanted of equal tasks, (status, node or ""), and left over when all found are taken.

    Those with a node choose first.
    """
    left, missing = list(found), []
    for status, node in sorted(wanted, key=lambda each: not each[1]):
        fitting = [each for each in left if each[0] == status and node in ("", each[1])]
        if fitting:
            left.remove(fitting[0])
        else:
            missing.append(f"{status} on {node}" if node else status)
    return missing
