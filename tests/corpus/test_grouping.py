"""Owner objects and pods in, gangs out: one file per framework in ``grouping/``.

A tree is written as its floor (``4``, ``2 within rack``) or as subgroups by name, with ``need`` for
how many of them must reach theirs and ``within`` for their common domain. Owners are named
``Kind/name``; ``pods`` lists the gang's pods by leaf.
"""

import random
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from kai_py.api.records.core import PartialObjectMetadata, Pod
from kai_py.api.records.job import Job
from kai_py.api.records.unstructured import unstructured
from kai_py.dialects.grouping import KaiGrouping
from kai_py.dialects.kai.workloads import KaiQueueNaming
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.grouping.gang import Subgroup
from kai_py.grouping.owner_chain import GroupKind
from kai_py.grouping.rule_table import RuleTable, shipped_rules
from kai_py.simulate.files.objects import Document
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.snapshot.quarantine import Quarantine, raise_failure
from kai_py.snapshot.snapshot import Snapshot
from tests.support import yaml_text
from tests.support.poison.fuzz import paths

CASES = sorted((Path(__file__).parent / "grouping").glob("*.yaml"))
TABLE = RuleTable(shipped_rules())


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_pods_become_the_gangs_of_their_framework(path):
    case = yaml_text.read(path.read_text())
    snapshot = grouped(case)
    assert sorted(snapshot.gangs) == sorted(case["gangs"])
    for key, wanted in case["gangs"].items():
        gang = snapshot.gangs[key]
        assert wanted.get("problem", "") in gang.problem, key
        assert bool(gang.problem) == ("problem" in wanted), gang.problem
        found = {
            "queue": gang.queue,
            "tree": written(gang.tree),
            "pods": by_leaf(gang),
            "waiting": {m.pod.name: m.waiting_for for m in gang.members if m.waiting_for},
        }
        expected = {
            "queue": wanted["queue"],
            "tree": wanted["tree"],
            "pods": wanted["pods"],
            "waiting": wanted.get("waiting", {}),
        }
        assert found == expected, key


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_order_of_arrival_does_not_matter(path):
    case = yaml_text.read(path.read_text())
    assert told(grouped(case)) == told(grouped(case, pods_first=True))


ABSURD = (
    *(0, -1, 2**31, 2**63, -(2**63), 0.5, 1e308, None, True, [], {}, [None], [{}], {"a": {}}),
    *("", "0", "-1", "9" * 5000, "1e30", "٣", "²", "-5%", "200%", "NaN", "\x00"),
)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_fields_of_a_workload_hold_its_gang_is_told_what_is_wrong(seed):
    """Custom resources may hold anything where their CRD does not say what they hold."""
    chance = random.Random(seed)
    documents = whole_objects(yaml_text.read(chance.choice(CASES).read_text()))
    for _ in range(chance.randint(1, 4)):
        made = chance.choice(documents)
        below = [
            path for part in ("spec", "status") for path in paths(made.get(part) or {}, (part,))
        ]
        *above, last = chance.choice(below or [("spec",)])
        holder = made
        for step in above:
            holder = holder[step]
        holder[last] = chance.choice(ABSURD)
    # Pods and Jobs are decoded, and refused, before they are grouped.
    readable = [each for each in documents if can_be_decoded(each)]
    snapshot = grouped_documents(readable, quarantine=Quarantine(raise_failure))
    assert all(gang.tree.min_pods() >= 0 for gang in snapshot.gangs.values())


def can_be_decoded(document: Document) -> bool:
    try:
        record(document)
    except (msgspec.ValidationError, TypeError):
        return False
    return True


def told(snapshot):
    return {
        key: (gang.queue, gang.tree, gang.problem, by_leaf(gang), gang.owner)
        for key, gang in snapshot.gangs.items()
    }


def grouped(case, *, pods_first: bool = False) -> Snapshot:
    documents = whole_objects(case)
    pods = [each for each in documents if is_pod(each)]
    owners = [each for each in documents if not is_pod(each)]
    ordered = pods[::-1] + owners[::-1] if pods_first else owners + pods
    return grouped_documents(ordered)


def grouped_documents(
    documents: Iterable[Document], quarantine: Quarantine | None = None
) -> Snapshot:
    grouping = KaiGrouping(RuleTable(shipped_rules()), KaiQueueNaming())
    builder = SnapshotBuilder(
        grouping.identify, ClusterDevices(), lambda spec: spec, quarantine=quarantine
    )
    for each in documents:
        collection, found = record(each)
        builder.apply(collection, None, found)
    return builder.snapshot(0.0)


def is_pod(whole: Document) -> bool:
    return (whole["apiVersion"], whole["kind"]) == ("v1", "Pod")


def whole_objects(case) -> list[Document]:
    """The objects of a case, then its pods, as the API server has them."""
    versions = {"Pod": "v1"} | {
        f"{each['kind']}/{each['name']}": each["apiVersion"] for each in case.get("objects", ())
    }
    owners = [
        {
            "apiVersion": each["apiVersion"],
            "kind": each["kind"],
            "metadata": metadata(each, each["kind"], each["name"], versions),
            "spec": each.get("spec", {}),
            "status": each.get("status", {}),
        }
        for each in case.get("objects", ())
    ]
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata(each, "Pod", name, versions),
            "spec": {"schedulerName": "kai-scheduler"} | each.get("spec", {}),
        }
        for each in case["pods"]
        for name in each["names"]
    ]
    return owners + pods


def record(whole: Document):
    """The collection of an object, and its record."""
    group, _, _ = whole["apiVersion"].rpartition("/")
    if is_pod(whole):
        return "pods", msgspec.convert(whole, Pod)
    if (group, whole["kind"]) == ("batch", "Job"):
        return "jobs", msgspec.convert(whole, Job)
    paths = TABLE.paths(GroupKind(group, whole["kind"]))
    built_in = "." not in group or group.endswith(".k8s.io")
    collection = f"{whole['kind'].lower()}s" + ("" if built_in else f".{group}")
    if whole["kind"] in ("PodGroup", "PodGang", "Workload"):
        return collection, unstructured(whole, ["spec"])
    if paths:
        return collection, unstructured(whole, paths)
    return collection, msgspec.convert(whole, PartialObjectMetadata)


def metadata(each, kind, name, versions):
    references = []
    if "owner" in each:
        owner_kind, _, owner_name = each["owner"].partition("/")
        version = versions["Pod"] if owner_kind == "Pod" else versions[each["owner"]]
        references = [
            {
                "apiVersion": version,
                "kind": owner_kind,
                "name": owner_name,
                "uid": f"{owner_kind}-{owner_name}",
                "controller": True,
            }
        ]
    return {
        "name": name,
        "namespace": "default",
        "uid": f"{kind}-{name}",
        "labels": each.get("labels", {}),
        "annotations": each.get("annotations", {}),
        "ownerReferences": references,
    }


def written(tree: Subgroup):
    within = tree.topology.required_level if tree.topology else ""
    if not tree.children:
        return f"{tree.min_members} within {within}" if within else tree.min_members
    need = {} if tree.min_subgroups is None else {"need": tree.min_subgroups}
    need |= {"within": within} if within else {}
    return need | {child.name: written(child) for child in tree.children}


def by_leaf(gang):
    leaves: dict[str, list[str]] = {}
    for member in gang.members:
        leaves.setdefault(member.subgroup, []).append(member.pod.name)
    names = {leaf: sorted(pods) for leaf, pods in leaves.items()}
    return names[""] if list(names) == [""] else names
