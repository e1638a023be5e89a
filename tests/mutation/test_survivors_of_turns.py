"""What no other fast test noticed of the turns of gangs, each by its smallest case."""

from types import SimpleNamespace

import numpy as np
import pytest

from kai_py.api.records.core import ObjectMeta, Pod
from kai_py.api.records.unstructured import Unstructured
from kai_py.grouping.frameworks import jobset, training_jobs
from kai_py.plan.actions import admit
from kai_py.plan.placement.next_pods import next_request
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.session.requests import request_kind
from kai_py.plan.state.reservations import Reservation
from kai_py.plan.victims.selection import VictimSelection
from tests.support.records import replace
from tests.support.worlds import gang, world


def test_the_launcher_of_an_mpi_job_starts_before_its_workers():
    def ranked(role, **index):
        labels = {"training.kubeflow.org/replica-type": role, **index}
        pod = Pod(metadata=ObjectMeta(name=role, labels=labels))
        return training_jobs._rank(training_jobs.LAUNCHER, pod)

    second = {training_jobs.INDEX_LABEL: "1"}
    assert ranked("launcher") < ranked("worker") < ranked("worker", **second)


@pytest.mark.parametrize(
    ("waits_for", "expected"),
    [(("server",), True), (("server", "fetch"), False), (("fetch", "server"), False)],
)
def test_a_replicated_job_is_expected_if_all_it_waits_for_starts_and_is_to_be_ready(
    waits_for, expected
):
    statuses = {"server": "Ready", "fetch": "Complete"}
    template = {"spec": {"parallelism": 1, "template": {"spec": {}}}}
    jobs = [
        *({"name": name, "template": template} for name in statuses),
        {
            "name": "client",
            "template": template,
            "dependsOn": [{"name": name, "status": statuses[name]} for name in waits_for],
        },
    ]
    content = {"spec": {"replicatedJobs": jobs}}
    job_set = Unstructured(metadata=ObjectMeta(name="s"), content=content)
    link = SimpleNamespace(found=job_set)
    workload = SimpleNamespace(link=link, metas=(job_set.metadata,))
    template = jobset.JOB_SET.gang_template(workload)
    assert bool(template.expected) is expected


@pytest.mark.parametrize(("costs", "refused"), [((1, 1), False), ((9, 1), False), ((9, 9), True)])
def test_pods_are_admitted_if_their_least_alternatives_are_within_quota(
    monkeypatch, costs, refused
):
    def checked(_quota, _gang, _pods, cost):
        return Unschedulable(Stage.QUEUE_MAX, "over") if cost > 5 else None

    written, least = costs
    monkeypatch.setattr(admit, "check_quota", checked)
    monkeypatch.setattr(admit, "least_cost", lambda *_: least)
    state = SimpleNamespace(quota=SimpleNamespace(cost_of=lambda _: written))
    assert (admit._check_quota(state, None, ()) is not None) is refused


@pytest.mark.parametrize(("nodes", "useless"), [("a", True), ("ab", False), ("b", False)])
def test_victims_are_useless_if_none_of_their_nodes_gained_anything(nodes, useless):
    def victims(key, nodes):
        members = tuple(SimpleNamespace(node=node) for node in nodes)
        return SimpleNamespace(members=members, gang=SimpleNamespace(key=key))

    selection = SimpleNamespace(
        _queue_limits=SimpleNamespace(never_exceeded=True),
        _capacity_count=SimpleNamespace(gaining_nodes=lambda: {"b"}),
    )
    units = [victims("one", nodes), victims("other", "b")]
    assert bool(VictimSelection.useless(selection, units)) is useless


def test_gangs_whose_pods_differ_have_no_kind_in_common():
    one, other = gang("one", pods=1), gang("other", pods=1)
    state = world({"a": 4, "b": 4}, one, other).session()
    reserved = Reservation(other, (0,), start=np.inf, cost=np.zeros(1))
    state.placer.reservations.active.append(reserved)
    request = next_request(one, state.statement, state.can_never_run)
    assert request_kind(state, one, request) is not None
    (member,) = request.members
    second = replace(member, shape=replace(member.shape, number=member.shape.number + 1))
    mixed = replace(request, members=(member, second))
    assert request_kind(state, one, mixed) is None
