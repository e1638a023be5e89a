"""Explain and what-if answer on every snapshot that a live API can yield, and on halves of it."""

import copy
import random

import pytest

from kai_py.api.choices import Subject
from kai_py.config import Configuration
from kai_py.simulate.changes import DrainNode
from kai_py.simulate.explained_cluster import explain_cluster
from kai_py.simulate.what_if import what_if
from tests.simulate.clusters import NOW, job, priority_class, queue, simulated
from tests.support.poison.fuzz import paths

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def documents():
    """Running and waiting Jobs with claims of a template, in queues of a tree."""
    cluster = simulated(
        queue("root", 8),
        queue("team", 4, parent="root"),
        queue("other", 4, parent="root"),
        priority_class("high", 100),
        job("runs", 3, "team"),
        job("also-runs", 2, "other", "high"),
        job("waits", 9, "team"),
        nodes=2,
    )
    cluster.settle(30)
    return cluster.documents()


def ask(documents):
    """Both questions; an exception is no answer."""
    what_if(documents, [DrainNode("node-0")], Configuration(), now=NOW + 30)
    explain_cluster(
        documents,
        Configuration(),
        now=NOW + 30,
        subject=Subject.GANG,
        name="default/Job/waits",
        with_suggestions=False,
    )


def left_out(documents):
    """Every cluster with one object missing; of the nodes one stays."""
    for position, each in enumerate(documents):
        if each["metadata"]["name"] != "node-0":
            yield [*documents[:position], *documents[position + 1 :]]


@pytest.mark.slow
def test_each_object_may_be_missing(documents):
    worlds = list(left_out(documents))
    assert len(worlds) > 25
    for world in worlds:
        ask(world)


def test_all_owners_may_be_missing(documents):
    ask([each for each in documents if each["kind"] != "Job"])
    ask([each for each in documents if each["kind"] not in ("Pod", "Job")])


def test_a_claim_whose_pod_is_gone_is_no_error(documents):
    """Between the deletion of a pod and the collection of its claim, when people ask."""
    pods = [each for each in documents if each["kind"] == "Pod"]
    assert pods
    for pod in pods[:3]:
        ask([each for each in documents if each is not pod])


@pytest.mark.parametrize("seed", range(12))
def test_each_field_may_be_absent_null_or_empty(documents, seed):
    source = random.Random(seed)
    halved = copy.deepcopy(documents)
    for document in source.sample(halved, 6):
        place = source.choice([path for path in paths(document) if path != ("metadata",)])
        holder = document
        for step in place[:-1]:
            holder = holder[step]
        value = holder[place[-1]]
        emptied = type(value)() if isinstance(value, list | dict) else None
        holder[place[-1]] = source.choice((None, emptied))
        if source.random() < 0.4 and isinstance(holder, dict):
            del holder[place[-1]]
    ask(halved)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(12, 400))
def test_each_field_may_be_absent_null_or_empty_at_length(documents, seed):
    test_each_field_may_be_absent_null_or_empty(documents, seed)


@pytest.mark.parametrize("template", [None, {}, {"spec": None}])
def test_a_waiting_job_may_have_half_a_template(documents, template):
    halved = copy.deepcopy([each for each in documents if each["kind"] != "Pod"])
    for each in halved:
        if each["metadata"]["name"] == "waits":
            each["spec"]["template"] = template
    ask(halved)


@pytest.mark.parametrize("status", ["Running", 7, ["Running"]])
def test_a_pod_whose_status_is_no_object_is_left_out(documents, status):
    pod = next(each for each in documents if each["kind"] == "Pod")
    ask([{**each, "status": status} if each is pod else each for each in documents])
