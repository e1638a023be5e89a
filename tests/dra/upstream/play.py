"""Scenarios as objects and outcomes, played on cycles in this process.

A scenario is named after the test of Kubernetes whose situation it has. Its objects are those of
``tests.cluster.conformance.both_schedulers``, so the same table can be played on a real API server
beside kube-scheduler. Steps are pods in order; ``-p`` deletes pod p, ``+n`` adds the objects ``n``
of ``late``.

What is expected of a pod, at the end:

    "!text"     it waits, and its message contains the text
    "2"         it is on a node with so many devices
    "a: d0 d1"  it is on that node with these devices; without a node on any
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from kai_py.api.records.core import PodResourceClaimStatus
from kai_py.api.records.resource import DeviceClass, ResourceClaim, ResourceSlice
from kai_py.api.records.resource_admin import DeviceTaintRule
from kai_py.watch import kinds
from tests.cluster.conformance import both_schedulers as documents
from tests.cluster.conformance.both_schedulers import OURS, Case
from tests.dra.upstream.objects import ONE, P
from tests.support.executed_plans import remove_pod, start
from tests.support.records import from_json
from tests.support.scenario import Cluster, at, cluster, node, queue

Json = dict[str, Any]
NAMESPACE = "case"
RECORDS = {
    "DeviceClass": DeviceClass,
    "ResourceSlice": ResourceSlice,
    "ResourceClaim": ResourceClaim,
    "DeviceTaintRule": DeviceTaintRule,
}


@dataclass(frozen=True)
class Scenario:
    """``source``: the test of Kubernetes; ``expect``: by pod, as above."""

    source: str
    expect: Mapping[str, str]
    case: Case
    late: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    objects: Sequence[Json] = ()
    cpu: str = "64"
    plugin: int = 0
    """Devices of a device plugin on node a, of the case's extended resource."""
    without_class: bool = False
    pod_fields: Mapping[str, Json] = field(default_factory=dict)
    """Fields of pod specs that replace those of the case."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of every node."""

    @property
    def is_plain(self) -> bool:
        """Whether the case alone, all pods in order, is the scenario."""
        special = self.late or self.objects or self.plugin or self.without_class or self.pod_fields
        return (
            not (special or self.labels)
            and self.cpu == "64"
            and all(p[0] not in "-+" for p in self.case.pods)
        )


def scenario(source: str, expect: Mapping[str, str], **fields: Any) -> Scenario:
    """A scenario; ``fields``: its own, and those of its case.

    Unless they say otherwise, a pod p claims one device by a template.
    """
    own = {
        name: fields.pop(name)
        for name in ("late", "objects", "cpu", "plugin", "without_class", "pod_fields", "labels")
        if name in fields
    }
    waits = frozenset(name for name, text in expect.items() if text.startswith("!"))
    name = source.rpartition("/")[2].lower().replace(" ", "-").replace("_", "-")[:40].strip("-.,")
    return Scenario(
        source, expect, Case(name, waits=waits, **{"pods": P, "requests": ONE, **fields}), **own
    )


def play(given: Scenario) -> dict[str, str]:
    """Run the steps, one cycle after each; what became of each pod, as ``expect`` has it."""
    return play_through(given)[0]


def play_through(given: Scenario) -> tuple[dict[str, str], Cluster]:
    """What became of each pod, and all objects at the end."""
    world = _world(given)
    found: dict[str, str] = {}
    for step, claims in given.case.pods.items():
        if step.startswith("-"):
            remove_pod(world, world.get("pods", step[1:], NAMESPACE))
            found.pop(step[1:], None)
        elif step.startswith("+"):
            world.add(*(_record(each) for each in given.late[step[1:]]))
        else:
            _submit(world, given, step, claims)
        found |= _cycle(world)
    return found, world


def fits(expected: str, found: str) -> bool:
    """Whether what became of a pod is as expected."""
    if expected.startswith("!"):
        return found.startswith("!") and expected[1:] in found
    if found.startswith("!"):
        return False
    where, _, devices = found.partition(": ")
    if expected.isdigit():
        return len(devices.split()) == int(expected)
    wanted, _, named = expected.rpartition(": ")
    return named.split() == devices.split() and wanted in ("", where)


def differences(given: Scenario) -> dict[str, str | None]:
    """What became of the pods of which something else is expected."""
    found = play(given)
    return {p: found.get(p) for p, text in given.expect.items() if not fits(text, found.get(p, ""))}


def _world(given: Scenario) -> Cluster:
    resource = f"{NAMESPACE}.example.com/device"
    nodes = [node(name, 0, cpu=given.cpu, labels=given.labels) for name in ("a", "b")]
    if given.plugin:
        status = nodes[0].status
        amounts = {**status.allocatable, resource: str(given.plugin)}
        nodes[0] = replace(nodes[0], status=replace(status, allocatable=amounts))
    nodes = [each for each in nodes if each.metadata.name in given.case.devices or given.plugin]
    world = cluster(queue("team-a", 1000), nodes or [node("a", 0)])
    objects = [*documents.slices(given.case, NAMESPACE), *given.objects]
    if not given.without_class:
        objects.append(documents.device_class(given.case, NAMESPACE))
    for requests_name, requests in given.case.requests.items():
        if not requests_name.startswith("="):
            objects.append(documents.claim(given.case, NAMESPACE, requests_name, requests))
    world.add(*(_record(each) for each in objects))
    return world


def _record(document: Json) -> object:
    named = msgspec.json.decode(msgspec.json.encode(document).replace(b"CASE", NAMESPACE.encode()))
    meta = named["metadata"]
    meta.setdefault("uid", f"{named['kind']}-{meta['name']}")
    return from_json(RECORDS[named["kind"]], named)


def _submit(world: Cluster, given: Scenario, name: str, claims: Sequence[str]) -> None:
    document = documents.pod(given.case, NAMESPACE, name, claims, OURS)
    document["metadata"] |= {"uid": f"pod-{name}"}
    document["spec"] |= given.pod_fields.get(name, {})
    pod = kinds.PODS.at().decode(msgspec.json.encode(document))
    made = []
    for entry in claims:
        if entry.startswith("=") and entry in given.case.requests:
            body = documents.claim(given.case, NAMESPACE, entry[1:], given.case.requests[entry])
            owner = {"kind": "Pod", "name": name, "uid": f"pod-{name}", "controller": True}
            body["metadata"] |= {"name": f"{name}-{entry[1:]}", "ownerReferences": [owner]}
            world.add(_record(body))
            made.append(
                PodResourceClaimStatus(name=entry[1:], resource_claim_name=f"{name}-{entry[1:]}")
            )
    meta = replace(pod.metadata, creation_timestamp=at(float(len(world.all()))))
    status = replace(pod.status, resource_claim_statuses=tuple(made))
    world.add(replace(pod, metadata=meta, status=status))


def _cycle(world: Cluster) -> dict[str, str]:
    plan = world.plan()
    found = {
        each.gang.rpartition("/")[2]: f"!{each.message}" for each in plan.unplaced if each.message
    }
    for gang in plan.placements:
        for placed in gang.pods:
            start(world, placed)
            found[placed.pod.name] = f"{placed.node}: {' '.join(_devices(world, placed))}"
    return found


def _devices(world: Cluster, placed: Any) -> Iterator[str]:
    names = [ref.name for ref in placed.reserve]
    if placed.create_claim is not None:
        names.append(placed.create_claim.claim.metadata.name)
    claims = [world.get("resourceclaims", name, placed.pod.namespace) for name in names]
    yield from sorted(
        result.device for claim in claims for result in claim.status.allocation.devices.results
    )
