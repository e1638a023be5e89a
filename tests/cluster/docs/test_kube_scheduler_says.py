"""What kube-scheduler says of the same objects, as docs/troubleshooting.md shows it side by side.

``RECORD_PENDING=1`` writes what it says to ``tests/corpus/pending/kube_scheduler.json``.
"""

import copy
import os
import re

import msgspec
import pytest

from tests.docs.pending_table import COMPARED, RECORDED, recorded
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import SCHEDULER
from tests.support.cluster.scheduling import install_definitions
from tests.support.situations import Situation, few_fast

THEIRS = "default-scheduler"
NOTHING = "says nothing"
RANDOM = re.compile(r"(?<=waiting)-[a-z0-9]{5}\b|(?<=gpu)-[a-z0-9]{5}\b")
"""What the API server adds to names."""


@pytest.mark.usefixtures("kube_scheduler")
@pytest.mark.parametrize("situation", few_fast(COMPARED))
async def test_kube_scheduler_says_what_the_page_shows(real: Cluster, situation: Situation):
    await install_definitions(real.api)
    async with real.run_nodes(situation.nodes):
        await real.submit(*situation.objects)
        for document in situation.waits:
            await real.submit(for_kube_scheduler(document))
        pods = sum(map(size, situation.waits))
        if recorded().get(situation.name, NOTHING) == NOTHING:
            said = await verdict_in_time(real, pods)
        else:
            said = await eventually(lambda: verdict(real, pods), what="a verdict")
    if os.environ.get("RECORD_PENDING"):
        RECORDED.write_bytes(
            msgspec.json.format(
                msgspec.json.encode({**recorded(), situation.name: said}, order="sorted")
            )
            + b"\n"
        )
    assert recorded()[situation.name] == said


def for_kube_scheduler(document: Document) -> Document:
    """The workload with pods for kube-scheduler, unless they name yet another scheduler."""
    theirs = copy.deepcopy(document)
    spec = theirs["spec"].get("template", theirs).get("spec", {})
    if spec.get("schedulerName") == SCHEDULER:
        spec["schedulerName"] = THEIRS
    return theirs


def size(document: Document) -> int:
    """The pods of a workload, none of any other object."""
    if document["kind"] not in ("Job", "Pod"):
        return 0
    return int(document["spec"].get("parallelism", 1))


async def verdict_in_time(cluster: Cluster, pods: int) -> str:
    """The verdict, or that none came in a time in which others do."""
    try:
        return await eventually(lambda: verdict(cluster, pods), within=5.0, what="a verdict")
    except AssertionError:
        return NOTHING


async def verdict(cluster: Cluster, count: int) -> str:
    """The sentence of the first pod that waits, or that all run; "" where nothing is said."""
    pods = (await cluster.api.get("/api/v1/namespaces/default/pods"))["items"]
    conditions = [
        condition
        for pod in pods
        for condition in pod["status"].get("conditions") or ()
        if condition["type"] == "PodScheduled"
    ]
    waiting = [each for each in conditions if each["status"] == "False"]
    assert len(conditions) == len(pods) == count
    if waiting:
        return RANDOM.sub("-…", waiting[0].get("message", ""))
    return "places the pods"
