"""What no other fast test noticed of the objects that commit writes, each by its smallest case."""

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from kai_py.api.queue import ADMISSION_GATE
from kai_py.api.records.core import ObjectMeta, Pod, PodSchedulingGate, PodSpec, PodStatus
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.records.unstructured import unstructured
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.claims.binding_conditions import never_ready
from kai_py.commit.claims.extended_resources import delete_claim
from kai_py.commit.pod_patches import GateRemover
from kai_py.commit.provisioner import CLASS_KEY, REQUEST_KEY, Provisioner, unannotated_pods
from kai_py.commit.provisioning_request import MANAGED_BY, DesiredRequest, PodSet
from kai_py.commit.reports import PlanReports
from kai_py.commit.settings import CommitSettings
from kai_py.grouping.gang import Owner
from kai_py.plan.observations import ObjectProblem
from kai_py.plan.plan import Admission, Plan
from kai_py.snapshot.derived_pod import AssumedBinding
from kai_py.snapshot.tables.assumptions import Assumptions
from kai_py.watch.errors import ApiError, from_response
from tests.support.records import from_json


async def for_a_moment(running):
    """Run what never ends by itself until it waits for something else."""
    task = asyncio.create_task(running)
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_the_gate_of_admission_is_removed_from_admitted_pods_once_and_from_no_other():
    gates = {"ours": (ADMISSION_GATE, "other"), "theirs": ("other",), "none": ()}
    refs = tuple(PodRef("ns", name, name) for name in (*gates, "gone"))
    pods = {
        name: Pod(
            metadata=ObjectMeta(name=name, namespace="ns", uid=name),
            spec=PodSpec(scheduling_gates=tuple(PodSchedulingGate(name=each) for each in given)),
        )
        for name, given in gates.items()
    }
    written = []

    async def patch_pod(ref, patch, *, patch_type):
        written.append((ref.name, patch["spec"]["schedulingGates"]))

    remover = GateRemover(SimpleNamespace(patch_pod=patch_pod), lambda ref: pods.get(ref.name))
    for _ in range(2):
        remover.update((Admission("g", refs),))
    await for_a_moment(remover.run())
    assert written == [("ours", [{"$patch": "delete", "name": ADMISSION_GATE}])]
    remover.update((Admission("g", refs),))
    await for_a_moment(remover.run())
    assert len(written) == 2  # as the first write may have been lost


@pytest.mark.parametrize(("manager", "removed"), [("ours", ["r"]), ("theirs", [])])
async def test_requests_for_nodes_that_others_made_are_left_to_them(manager, removed):
    meta = {"name": "r", "namespace": "ns", "uid": "u", "labels": {MANAGED_BY: manager}}
    requests, deleted = {("ns", "r"): unstructured({"metadata": meta}, ("spec", "status"))}, []

    async def delete(_resource, name, **_where):
        deleted.append(name)

    machine = SimpleNamespace(now=lambda: 0.0)
    mirror = SimpleNamespace(
        served=lambda _kind: SimpleNamespace(),
        objects=lambda kind: requests if kind.name == "ProvisioningRequest" else {},
    )
    client = SimpleNamespace(delete=delete, machine=machine)
    provisioner = Provisioner(client, mirror, CommitSettings(scheduler_name="ours"))
    provisioner.update(Plan(), [])
    await for_a_moment(provisioner.run())
    assert deleted == removed


@pytest.mark.parametrize(
    ("on", "phase", "known"), [("", "Pending", "n"), ("n", "Running", ""), ("", "Failed", "")]
)
def test_a_binding_is_assumed_until_the_pod_is_shown_on_a_node_or_finished(on, phase, known):
    assumptions = Assumptions(60.0)
    pod = Pod(
        metadata=ObjectMeta(name="p", uid="p"),
        spec=PodSpec(node_name=on),
        status=PodStatus(phase=phase),
    )
    assumptions.assume(AssumedBinding("p", "n"))
    assumptions.observe(pod)
    assert assumptions.node_of("p") == known


@pytest.mark.parametrize(
    ("true", "age", "named"),
    [
        ("", 600, ""),
        ("", 601, "Attached"),
        ("Attached", 601, ""),
        ("Broken", 10, "Broken"),
    ],
)
def test_devices_are_given_up_when_they_fail_or_are_late(true, age, named):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    device = {"driver": "d", "pool": "p", "device": "x"}
    conditions = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}
    results = [{"request": "r", **device, **conditions}]
    allocated = (now - timedelta(seconds=age)).isoformat()
    reported = [{**device, "conditions": [{"type": true, "status": "True"}]}]
    status = {
        "allocation": {"devices": {"results": results}, "allocationTimestamp": allocated},
        "devices": reported,
    }
    claim = from_json(ResourceClaim, {"metadata": {"name": "c"}, "status": status})
    found = never_ready(claim, 600.0, now)
    assert [condition for _, condition in found.devices] == [named] if found else not named


def test_pods_of_a_request_get_its_annotations_unless_they_have_them_or_are_others():
    kept = {REQUEST_KEY: "request", CLASS_KEY: "class"}
    given = {"bare": {}, "done": kept, "older": {**kept, REQUEST_KEY: "old"}, "other": {}}
    pods = {
        ("ns", name): Pod(
            metadata=ObjectMeta(
                name=name,
                namespace="ns",
                uid="new" if name == "other" else name,
                annotations=annotations,
            )
        )
        for name, annotations in given.items()
    }
    refs = tuple(PodRef("ns", name, name) for name in (*given, "gone"))
    owner = Owner("v1", "Gang", "ns", "g", "g")
    desired = DesiredRequest("g", owner, "request", "class", (PodSet(refs),))
    assert [each.metadata.name for each in unannotated_pods(desired, pods)] == ["bare", "older"]


@pytest.mark.parametrize(("code", "said"), [(404, False), (403, True)])
async def test_a_claim_that_cannot_be_deleted_is_an_error_unless_it_is_gone(code, said):
    details = {"name": "c", "kind": "resourceclaims"}
    reason = {404: "NotFound", 403: "Forbidden"}[code]
    body = json.dumps({"code": code, "reason": reason, "details": details}).encode()

    async def read_claim(_claim):
        raise from_response("get", code, body, {})

    try:
        await delete_claim(SimpleNamespace(read_claim=read_claim), ClaimRef("ns", "c", "u"))
    except ApiError:
        assert said
    else:
        assert not said


def test_problems_of_pods_are_reported_at_once_and_others_at_the_next_look():
    problems = [
        ObjectProblem(Owner("v1", kind, "ns", kind.lower(), "u"), "cannot be read")
        for kind in ("Pod", "Node")
    ]
    reported = []
    reports = SimpleNamespace(
        _dependencies=SimpleNamespace(failures=SimpleNamespace(contained=lambda *_: None)),
        events=SimpleNamespace(report_problem=reported.append),
    )
    PlanReports._report_pending(reports, Plan(problems=tuple(problems)))
    assert reported == problems[:1]
