"""What kube-scheduler says of the same objects, as docs/troubleshooting.md shows it side by side.

``make nightly`` asks it of all of them, ``make test`` of a few: its version is pinned. With
``RECORD_PENDING=1`` what it says is written to ``tests/corpus/pending/kube_scheduler.json``.
"""

import copy
import os
import re
from collections.abc import Iterator

import msgspec
import pytest

from tests.cluster.controlplane import ControlPlane, Process
from tests.docs.pending_table import COMPARED, RECORDED, recorded
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import SCHEDULER, pod, pod_spec
from tests.support.cluster.scheduling import install_definitions
from tests.support.situations import Situation, few_daily

THEIRS = "default-scheduler"
NOTHING = "says nothing"
LATER = "later"
RANDOM = re.compile(r"(?<=waiting)-[a-z0-9]{5}\b|(?<=gpu)-[a-z0-9]{5}\b")
"""What the API server adds to names."""


@pytest.fixture(scope="module")
def kube_scheduler(real_control_plane: ControlPlane) -> Iterator[Process]:
    """One for all tests of this module: it would take longer to start than to answer."""
    with real_control_plane.kube_scheduler() as scheduler:
        yield scheduler


@pytest.mark.usefixtures("kube_scheduler")
@pytest.mark.parametrize("situation", few_daily(COMPARED))
async def test_kube_scheduler_says_what_the_page_shows(real: Cluster, situation: Situation):
    await install_definitions(real.api)
    async with real.run_nodes(situation.nodes):
        await real.submit(*situation.objects)
        for document in situation.waits:
            await real.submit(for_kube_scheduler(document))
        pods = sum(map(size, situation.waits))
        if os.environ.get("RECORD_PENDING"):
            said = await verdict_in_time(real, pods)
            kept = {**recorded(), situation.name: said}
            RECORDED.write_bytes(
                msgspec.json.format(msgspec.json.encode(kept, order="sorted")) + b"\n"
            )
        elif recorded()[situation.name] == NOTHING:
            await eventually(lambda: are_made(real, pods))
            await has_judged_a_later_pod(real)
            judged = [pod for pod in await pods_of(real) if conditions_of(pod)]
            assert [pod["metadata"]["name"] for pod in judged] == [LATER]
        else:
            await eventually(lambda: same_verdict(real, pods, recorded()[situation.name]))


async def same_verdict(cluster: Cluster, pods: int, expected: str) -> bool:
    """Whether it says so now: its first sentence may be of a claim that no controller has bound."""
    assert await verdict(cluster, pods) == expected
    return True


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


async def pods_of(cluster: Cluster) -> list[Document]:
    return await cluster.api.items("/api/v1/namespaces/default/pods")


def conditions_of(pod: Document) -> list[Document]:
    """What kube-scheduler says of a pod."""
    found = pod["status"].get("conditions") or ()
    return [each for each in found if each["type"] == "PodScheduled"]


async def are_made(cluster: Cluster, count: int) -> bool:
    return len(await pods_of(cluster)) == count


async def has_judged_a_later_pod(cluster: Cluster) -> None:
    """Wait until kube-scheduler has judged a pod that was created after all others."""
    await cluster.submit(pod(LATER, pod_spec(scheduler=THEIRS)))

    async def judged() -> bool:
        return any(map(conditions_of, await pods_of(cluster)))

    await eventually(judged, what="a verdict on a later pod")


async def verdict_in_time(cluster: Cluster, pods: int) -> str:
    """The verdict, or that none came in a time in which others do."""
    try:
        return await eventually(lambda: verdict(cluster, pods), within=5.0, what="a verdict")
    except AssertionError:
        return NOTHING


async def verdict(cluster: Cluster, count: int) -> str:
    """The sentence of the first pod that waits, or that all run; "" where nothing is said."""
    pods = await pods_of(cluster)
    conditions = [each for pod in pods for each in conditions_of(pod)]
    waiting = [each for each in conditions if each["status"] == "False"]
    assert len(conditions) == len(pods) == count
    if waiting:
        return RANDOM.sub("-…", waiting[0].get("message", ""))
    return "places the pods"
