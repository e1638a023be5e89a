"""Which requests a plan makes for gangs that wait for capacity, and what is told of them."""

import asyncio
from types import SimpleNamespace

from msgspec import json
from msgspec.structs import replace

from kai_py.api.autoscaling import AutoscalingConfig, ProvisioningConfig
from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.unstructured import Unstructured, unstructured
from kai_py.commit.provisioner import Provisioner
from kai_py.commit.provisioning_request import (
    MANAGED_BY,
    desired_requests,
    failed_at,
    request_body,
    request_state,
    waiting_for_capacity,
    with_request_states,
)
from kai_py.commit.settings import CommitSettings
from kai_py.plan.plan import Plan, Stage
from kai_py.watch.client import Client
from kai_py.watch.errors import from_response
from kai_py.watch.kinds import PROVISIONING_REQUESTS
from tests.dialects.feeding import Cluster, node, pod
from tests.dialects.test_native_groups import QUEUE

ATOMIC = ProvisioningConfig(class_name="atomic")
CLASS = "scheduling.kai.io/provisioning-class-name"
FLOOR = "scheduling.kai.io/min-available"
TRAIN = "default/Job/train"


def train(count, *, floor=None, limit=None, gpus=1, **marks):
    """A Job with its pods."""
    annotations = {"scheduling.kai.io/queue-name": "team", **marks}
    if floor is not None:
        annotations[FLOOR] = str(floor)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "default", "annotations": annotations},
        "spec": {"parallelism": count, "completions": count},
    }
    return [job, *(pod(f"train-{i}", gpus, owner=job) for i in range(limit or count))]


def asked(cluster, chosen=ATOMIC):
    """Class and counts of every request, by gang."""
    snapshot = cluster.snapshot()
    plan = cluster.planner.decide(snapshot)
    return {
        gang: (wish.class_name, [each.count for each in wish.pod_sets])
        for gang, wish in desired_requests(plan, snapshot.gangs, chosen).items()
    }


def wish_of(cluster):
    snapshot = cluster.snapshot()
    plan = cluster.planner.decide(snapshot)
    return plan, snapshot.gangs, desired_requests(plan, snapshot.gangs, ATOMIC)


def stands(*types, message="", at="2026-05-01T12:00:00Z"):
    """A request with conditions."""
    conditions = [
        {"type": each, "status": "True", "message": message, "lastTransitionTime": at}
        for each in types
    ]
    return Unstructured(
        metadata=ObjectMeta(name="r", namespace="default", uid="u"),
        content={"status": {"conditions": conditions}},
    )


def test_a_gang_without_capacity_asks_for_all_of_its_floor():
    cluster = Cluster(QUEUE, node("n", 2), train(5, floor=4))
    assert asked(cluster) == {TRAIN: ("atomic", [4])}


def test_pods_of_two_kinds_are_two_sets():
    job, *pods = train(4)
    cluster = Cluster(QUEUE, node("n", 1), job, pods[:1], train(4, gpus=2)[2:])
    assert sorted(asked(cluster)[TRAIN][1]) == [1, 3]


def test_a_gang_that_fits_or_waits_for_something_else_asks_for_nothing():
    assert asked(Cluster(QUEUE, node("n", 8), train(4))) == {}
    assert asked(Cluster(QUEUE, node("n", 2), train(4, limit=3))) == {}
    assert asked(Cluster(node("n", 2), train(4))) == {}


def test_the_annotation_goes_before_the_configuration():
    wanted = Cluster(QUEUE, node("n", 2), train(4, **{CLASS: "check-capacity"}))
    assert asked(wanted, ProvisioningConfig()) == {TRAIN: ("check-capacity", [4])}
    assert asked(wanted) == {TRAIN: ("check-capacity", [4])}
    assert asked(Cluster(QUEUE, node("n", 2), train(4, **{CLASS: "none"}))) == {}
    assert asked(Cluster(QUEUE, node("n", 2), train(4)), ProvisioningConfig()) == {}


def test_a_gang_that_has_started_asks_for_nothing_more():
    running = [{**each, "spec": {**each["spec"], "nodeName": "n"}} for each in train(5)[1:4]]
    cluster = Cluster(QUEUE, node("n", 3), train(5, floor=3), running)
    assert cluster.plan().unplaced
    assert asked(cluster) == {}


def test_the_name_follows_from_what_is_asked_for():
    def name(*given):
        return wish_of(Cluster(QUEUE, node("n", 1), *given))[2][TRAIN].name

    assert name(train(4)) == name(train(4))
    assert len({name(train(4)), name(train(5)), name(train(4, gpus=2))}) == 3


def test_a_gang_with_a_request_does_not_call_for_single_nodes():
    plan, _, wishes = wish_of(Cluster(QUEUE, node("n", 2), train(4)))
    (waits,) = with_request_states(plan, wishes, {}).unplaced
    assert waits.stage == "ProvisioningRequested"
    assert waits.message.endswith(
        f"; ProvisioningRequest {wishes[TRAIN].name}: it is being created."
    )
    answered = with_request_states(
        plan, wishes, {wishes[TRAIN].key: stands("Failed", message="no quota.")}
    )
    assert answered.unplaced[0].message.endswith(": it failed (no quota).")


def test_the_last_thing_that_happened_to_a_request_is_told():
    assert request_state(stands()) == ("", "no autoscaler has responded yet")
    assert request_state(stands("Accepted"))[0] == "Accepted"
    assert request_state(stands("Accepted", "Provisioned"))[0] == "Provisioned"
    assert request_state(stands("Accepted", "Provisioned", "BookingExpired"))[0] == "BookingExpired"
    assert (
        request_state(stands("Accepted", "Provisioned", "CapacityRevoked"))[0] == "CapacityRevoked"
    )


def test_only_requests_that_came_to_nothing_have_ended():
    assert failed_at(stands("Accepted", "Provisioned")) is None
    assert failed_at(stands("Failed")) == 1_777_636_800.0
    assert failed_at(stands("Failed", at=None)) == 0.0


def test_a_gang_keeps_its_request_until_it_started_or_waits_for_something_else():
    waiting = Cluster(QUEUE, node("n", 2), train(4))
    plan, gangs, _ = wish_of(waiting)
    assert waiting_for_capacity(plan, gangs.values()) == {TRAIN}
    plan, gangs, _ = wish_of(Cluster(QUEUE, node("n", 2), train(4, limit=3)))
    assert waiting_for_capacity(plan, gangs.values()) == frozenset()
    running = [{**each, "spec": {**each["spec"], "nodeName": "n"}} for each in train(4)[1:]]
    plan, gangs, _ = wish_of(Cluster(QUEUE, node("n", 8), train(4), running))
    assert waiting_for_capacity(plan, gangs.values()) == frozenset()


def test_a_request_names_its_gang_and_goes_with_its_owner():
    wish = wish_of(Cluster(QUEUE, node("n", 2), train(4)))[2][TRAIN]
    body = request_body(wish, {"ValidUntilSeconds": "600"}, "kai-scheduler")
    assert body["metadata"]["annotations"] == {"scheduling.kai.io/gang": TRAIN}
    assert body["metadata"]["ownerReferences"][0]["kind"] == "Job"
    assert body["spec"] == {
        "provisioningClassName": "atomic",
        "parameters": {"ValidUntilSeconds": "600"},
        "podSets": [{"podTemplateRef": {"name": f"{wish.name}-0"}, "count": 4}],
    }


async def test_only_templates_of_the_request_go_with_it():
    requested = ("r-0", "of-a-user", "gone", "../pods/p", "")
    request = unstructured(
        {
            "metadata": {
                "name": "r",
                "namespace": "ns",
                "uid": "u",
                "labels": {MANAGED_BY: CommitSettings().scheduler_name},
            },
            "spec": {"podSets": [{"podTemplateRef": {"name": name}} for name in requested]},
        },
        ("spec", "status.conditions"),
    )
    api = Templates({"r-0": "u", "of-a-user": "another"})
    mirror = SimpleNamespace(
        served=lambda _kind: PROVISIONING_REQUESTS.at(),
        objects=lambda kind: {("ns", "r"): request} if kind is PROVISIONING_REQUESTS else {},
    )
    provisioner = Provisioner(Client(api), mirror, CommitSettings())
    provisioner.update(Plan(), ())
    task = asyncio.create_task(provisioner.run())
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    root = "/apis/autoscaling.x-k8s.io/v1/namespaces/ns/provisioningrequests"
    assert api.deleted == ["/api/v1/namespaces/ns/podtemplates/r-0", f"{root}/r"]


async def test_a_gang_whose_reason_alternates_makes_ever_fewer_requests(monkeypatch):
    """As beside a queue whose max is edited back and forth, once a second for ten minutes."""
    now, made, known = 0.0, [], {}
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: SimpleNamespace(time=lambda: now))
    monkeypatch.setattr(Provisioner, "_ensure_templates", lambda *_each: asyncio.sleep(0))

    async def create(_served, body, namespace):
        meta = {**body["metadata"], "uid": str(len(made)), "namespace": namespace}
        made.append(now)
        known[namespace, meta["name"]] = unstructured({"metadata": meta}, ("status.conditions",))

    async def delete(_served, name, *, namespace, uid):
        del known[namespace, name]

    mirror = SimpleNamespace(
        served=lambda _kind: PROVISIONING_REQUESTS.at(),
        objects=lambda kind: known if kind is PROVISIONING_REQUESTS else {},
    )
    settings = CommitSettings(autoscaling=AutoscalingConfig(provisioning=ATOMIC))
    client = SimpleNamespace(create=create, delete=delete)
    provisioner = Provisioner(client, mirror, settings)
    waiting, gangs, _ = wish_of(Cluster(QUEUE, node("n", 2), train(4)))
    blocked = Plan(unplaced=tuple(replace(e, stage=Stage.QUEUE_MAX) for e in waiting.unplaced))
    for second in range(600):
        now = float(second)
        provisioner.update(blocked if second % 2 else waiting, gangs.values())
        await provisioner._reconcile()
    assert made[0] == 0.0
    assert 10 < len(made) < 40
    assert now - made[-1] < 62, "it goes on"


class Templates:
    """A server of PodTemplates, by name the uid of the owner."""

    def __init__(self, owners):
        self.owners, self.deleted = owners, []

    async def send(self, call, **_options):
        name = call.path.rpartition("/")[2]
        if call.verb == "delete":
            self.deleted.append(call.path)
            return b'{"kind":"Status"}'
        if name not in self.owners:
            raise from_response(str(call), 404, b"{}", {})
        meta = {"name": name, "namespace": "ns", "uid": name}
        owner = {"apiVersion": "v1", "kind": "K", "name": "r", "uid": self.owners[name]}
        return json.encode({"metadata": {**meta, "ownerReferences": [owner]}})
