"""Every framework's gangs on the real API server: they start whole, or wait whole.

The cases are those of `tests/corpus/grouping`, all at once, each in a namespace of its own; the
test makes what the frameworks' controllers would make, with as many pods as the floors need. Each
gang asks for a resource of its own, of which there is one too little at first. ReplicaSets and
StatefulSets between a framework and its pods are left out, as their controllers would take the pods
away; `test_workloads` has the cases in which those decide, `test_native_groups` Kubernetes' groups.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kai_py.grouping.gang import is_satisfied
from kai_py.snapshot.gangs import Gang, PodState
from tests.cluster.fake_kubelet import FakeNode
from tests.corpus.test_grouping import CASES, grouped
from tests.support import yaml_text
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.frameworks import Framework, definition
from tests.support.cluster.manifests import SCHEDULER, queue
from tests.support.cluster.scheduling import (
    DEFINITIONS,
    defined_to_stay,
    install,
    install_definitions,
    scheduling,
)
from tests.support.cluster.view import scheduled_condition

BUILT_IN = ("apps", "batch", "")
BUILT_IN_DECIDES = {"bare-pods", "cronjob", "deployment", "statefulset", "unknown-kinds", "vllm"}
NOT_SERVED = {"native-podgroup", "native-workload", "job-scheduling-policy", "topology"}
BEYOND_ANY_CLUSTER = {"absurd-counts"}
"""Floors of more pods than can be made; the poison corpus has them on a real API server."""
OWN_RESOURCE = "example.com/capacity-of"
ENOUGH = 64


@dataclass(frozen=True)
class Case:
    """What a file says, without sets of built-in controllers, and the gangs that follow from it."""

    name: str
    objects: list[Document]
    pods: list[Document]
    gangs: dict[str, Gang]

    @property
    def namespace(self) -> str:
        return f"case-{self.name}"


def resource_of(case: Case, gang: Gang) -> str:
    return f"{OWN_RESOURCE}-{case.name}-{sorted(case.gangs).index(gang.key)}"


def starts(gang: Gang) -> bool:
    """Whether nothing but capacity keeps the gang from starting."""
    waits = any(member.waiting_for or member.problem for member in gang.members)
    gated = any(member.state is PodState.GATED for member in gang.members)
    ready = gang.can_be_satisfied and bool(gang.queue)
    return ready and not gang.problem and not waits and not gated


def read_case(path: Path) -> Case | None:
    """The case, or None where what is left out decides."""
    written = yaml_text.read(path.read_text(encoding="utf-8"))
    whole = grouped(written)
    objects, pods = without_sets(written)
    same = grouped({"objects": objects, "pods": pods})
    if _told(same.gangs) != _told(whole.gangs):
        return None
    complete(pods, same.gangs.values())
    completed = grouped({"objects": objects, "pods": pods})
    return Case(path.stem, objects, pods, dict(completed.gangs))


def without_sets(written: Document) -> tuple[list[Document], list[Document]]:
    """Objects and pods; a pod that was owned by a set is owned by what owned the set."""
    listed = written.get("objects", ())
    named = {f"{each['kind']}/{each['name']}": each for each in listed}
    sets = {key: each for key, each in named.items() if each["apiVersion"] == "apps/v1"}

    def re_owned(each: Document) -> Document:
        owner = each.get("owner", "")
        while owner in sets:
            owner = sets[owner].get("owner", "")
        rest = {key: value for key, value in each.items() if key != "owner"}
        return rest | {"owner": owner} if owner else rest

    objects = [re_owned(each) for key, each in named.items() if key not in sets]
    return objects, [re_owned(each) for each in written["pods"]]


def complete(pods: list[Document], gangs: Iterable[Gang]) -> None:
    """Let there be more pods like those that a file names, up to the floors of their gangs."""
    entries = {name: each for each in pods for name in each["names"]}
    for gang in gangs:
        counts = gang.counts(*PodState)
        like = {member.subgroup: member.pod.name for member in gang.members}
        for leaf in gang.tree.leaves():
            missing = leaf.min_members - counts.get(leaf.name, 0)
            if leaf.name in like:
                name = like[leaf.name]
                entry = entries[name]
                entry["names"] = [*entry["names"], *(f"{name}-more-{i}" for i in range(missing))]


def _told(gangs: Any) -> dict[str, Any]:
    return {key: (g.tree, g.queue, [m.pod.name for m in g.members]) for key, g in gangs.items()}


def cases() -> list[Case]:
    left_out = BUILT_IN_DECIDES | NOT_SERVED | BEYOND_ANY_CLUSTER
    read = [read_case(path) for path in CASES if path.stem not in left_out]
    return [case for case in read if case is not None]


async def test_gangs_of_all_frameworks_wait_whole_and_start_whole(real: Cluster) -> None:
    every = cases()
    assert len(every) >= 30
    whole = [(case, gang) for case in every for gang in case.gangs.values() if starts(gang)]
    few = {resource_of(c, g): str(g.tree.min_pods() - 1) for c, g in whole if g.tree.min_pods() > 1}
    many = {resource_of(c, g): str(ENOUGH) for c, g in whole}
    await install_definitions(real.api)
    names = {gang.queue for _, gang in whole}
    await real.submit(*(queue(name, deservedGPUs=100, maxGPUs=100) for name in sorted(names)))
    async with all_served(real, definitions_of(every)), real.run_nodes([node("few", few)]):
        listed = await asyncio.gather(*(submit(real, case) for case in every))
        made = [pod for pods_of_case in listed for pod in pods_of_case]
        async with scheduling(real):  # a leader without its workers may start: all are there first
            await eventually(lambda: all_wait(real, whole, made), within=60.0)
            async with real.run_nodes([node("many", many)]):
                await eventually(lambda: all_run(real, every, made), within=60.0)


async def all_wait(real: Cluster, whole: list[tuple[Case, Gang]], made: list[Document]) -> bool:
    """Every pod of a gang that could start calls for capacity, and none has any."""
    found = await pods_by_name(real, made)
    wrong = []
    for case, gang in whole:
        for member in gang.pending:
            pod = found[case.namespace, member.pod.name]
            said = scheduled_condition(pod)
            if pod["spec"].get("nodeName") or said.get("reason") != "Unschedulable":
                wrong.append(f"{case.name}: {member.pod.name}: {said}")
    assert not wrong
    return True


async def all_run(real: Cluster, every: list[Case], made: list[Document]) -> bool:
    """Every gang that can start has its floor, and no other has a pod bound."""
    found = await pods_by_name(real, made)
    wrong = []
    for case in every:
        for gang in case.gangs.values():
            counts: dict[str, int] = {}
            for member in gang.members:
                if found[case.namespace, member.pod.name]["spec"].get("nodeName"):
                    counts[member.subgroup] = counts.get(member.subgroup, 0) + 1
            right = is_satisfied(gang.tree, counts) if starts(gang) else not counts
            if not right:
                wrong.append(f"{case.name}: {gang.key}: {counts}")
    assert not wrong
    return True


async def pods_by_name(real: Cluster, made: list[Document]) -> dict[tuple[str, str], Document]:
    """Pods as they are; those that are gone are made again, as their controllers would.

    The garbage collector takes pods away whose owner's kind is not served for a moment.
    """
    found = {_key(each): each for each in await real.api.items("/api/v1/pods")}
    lost = [each for each in made if _key(each) not in found]
    await asyncio.gather(*(real.api.create(each) for each in lost))
    assert not lost
    return found


def _key(document: Document) -> tuple[str, str]:
    return document["metadata"]["namespace"], document["metadata"]["name"]


def node(name: str, resources: dict[str, str]) -> FakeNode:
    amounts = resources | {"pods": "1000", "cpu": "1000"}
    return FakeNode(name=name, labels={"rack": "r1"}, allocatable=amounts)


def definitions_of(every: list[Case]) -> list[Document]:
    """Kinds that are not Kubernetes' own, each in all versions that a case has it in."""
    versions: dict[tuple[str, str], set[str]] = {}
    for case in every:
        for each in case.objects:
            group, _, version = each["apiVersion"].rpartition("/")
            if group not in BUILT_IN:
                versions.setdefault((group, each["kind"]), set()).add(version)
    return [_definition(*kind, sorted(found)) for kind, found in sorted(versions.items())]


def _definition(group: str, kind: str, versions: list[str]) -> Document:
    framework = Framework(group, versions[0], kind, {}, ())
    made = definition(framework, f"{framework.plural}.{group}")
    first = made["spec"]["versions"][0]
    further = [first | {"name": version, "storage": False} for version in versions[1:]]
    made["spec"]["versions"] = [first, *further]
    return made


@asynccontextmanager
async def all_served(real: Cluster, definitions: list[Document]) -> AsyncIterator[None]:
    """The kinds are served for the duration of the block."""
    present = await defined_to_stay(real.api)
    new = [each for each in definitions if each["metadata"]["name"] not in present]
    await asyncio.gather(*(install(real.api, each) for each in definitions))
    try:
        yield
    finally:
        paths = [f"{DEFINITIONS}/{each['metadata']['name']}" for each in new]
        await asyncio.gather(*(real.api.delete(path) for path in paths))


async def submit(real: Cluster, case: Case) -> list[Document]:
    """Create owners before what they own; give the pods."""
    await real.create_namespace(case.namespace)
    made: dict[str, Document] = {}
    members = list(pods(case))
    left = [*owners(case), *members]
    while left:
        ready = [each for each in left if each[0] == "" or each[0] in made]
        assert ready, f"{case.name}: owners of {left} are missing"
        for owner, document in ready:
            if owner:
                document["metadata"]["ownerReferences"] = [reference(made[owner])]
            stored = await created(real, document)
            made[f"{document['kind']}/{document['metadata']['name']}"] = stored
        left = [each for each in left if each not in ready]
    return [document for _, document in members]


async def created(real: Cluster, document: Document) -> Document:
    stored = await real.api.create(document)
    if document.get("status"):
        types = await real.api.types(document["apiVersion"])
        meta = document["metadata"]
        path = types[document["kind"]].path(meta["name"], namespace=meta["namespace"])
        await real.api.patch(f"{path}/status", {"status": document["status"]})
    return stored


def owners(case: Case) -> Iterator[tuple[str, Document]]:
    for each in case.objects:
        spec = dict(each.get("spec", {}))
        if each["apiVersion"] == "batch/v1":
            spec |= {"managedBy": "example.com/the-test", "template": JOB_TEMPLATE}
        document = {
            "apiVersion": each["apiVersion"],
            "kind": each["kind"],
            "metadata": metadata(case, each["name"], each),
            "spec": spec,
            "status": each.get("status", {}),
        }
        yield each.get("owner", ""), document


JOB_TEMPLATE = {
    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
}


def pods(case: Case) -> Iterator[tuple[str, Document]]:
    gangs = {m.pod.name: gang for gang in case.gangs.values() for m in gang.members}
    for each in case.pods:
        for name in each["names"]:
            limits = {resource_of(case, gangs[name]): "1"}
            container = {"name": "main", "image": "none", "resources": {"limits": limits}}
            spec = {"schedulerName": SCHEDULER, **each.get("spec", {}), "containers": [container]}
            yield (
                each.get("owner", ""),
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": metadata(case, name, each),
                    "spec": spec,
                },
            )


def metadata(case: Case, name: str, each: Document) -> Document:
    return {
        "name": name,
        "namespace": case.namespace,
        "labels": each.get("labels", {}),
        "annotations": each.get("annotations", {}),
    }


def reference(owner: Document) -> Document:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
