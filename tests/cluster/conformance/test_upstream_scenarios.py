"""Scenarios of Kubernetes' own tests on the real API server, beside kube-scheduler.

Those whose objects alone are the scenario are played by both schedulers, one after the other. Both
start the same pods, and these are the ones that the table expects. ``DIFFERENCES`` has the reasons
where kube-scheduler does otherwise. ``make test`` plays every fourth of a table here, and all of
them in process (tests/dra/upstream).
"""

from collections.abc import AsyncIterator

import pytest

from tests.cluster.conformance.both_schedulers import OURS, THEIRS, play
from tests.cluster.fake_kubelet import FakeKubelet, FakeNode
from tests.dra.upstream import (
    test_e2e,
    test_e2e_extended_resources,
    test_integration,
    test_integration_node_resources,
    test_integration_slices,
    test_plugin,
    test_plugin_extended_resources,
)
from tests.support.cluster.api import Api
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.manifests import queue
from tests.support.cluster.scheduling import install_definitions, scheduling

_UNSAID = "kube-scheduler says nothing of a pod whose claims do not exist: nothing can be compared"
_EVICTED = (
    "both schedulers start the pod, and the device taint eviction controller of 1.36 deletes it: "
    "the toleration names no effect"
)
_GATE = "the API server's gate for lists of values is off, it is alpha"
NOT_PLAYED = {
    "TestPlugin/missing-claim": _UNSAID,
    "TestPlugin/missing-claim template": _UNSAID,
    "integration/EvictCluster tolerated": _EVICTED,
    "integration/EvictCluster tolerated key and value": _EVICTED,
    "integration/ListTypeAttributes": _GATE,
    "integration/ListTypeAttributes nothing in common": _GATE,
    "integration/FilterTimeout identical devices": (
        "kube-scheduler tries 21 of 20 equal devices until its time-out of ten seconds"
    ),
}
"""By source of a scenario, why it is played in process only."""

PLAYED = {
    table.__name__.rpartition("test_")[2].replace("_", "-"): [
        each for each in table.SCENARIOS if each.is_plain and each.source not in NOT_PLAYED
    ]
    for table in (
        test_plugin,
        test_plugin_extended_resources,
        test_integration,
        test_integration_node_resources,
        test_integration_slices,
        test_e2e,
        test_e2e_extended_resources,
    )
}
DIFFERENCES: dict[str, str] = {}
"""By source of a scenario, why kube-scheduler starts other pods."""


@pytest.fixture
async def api(real: Cluster, kube_scheduler: object) -> AsyncIterator[Api]:
    await install_definitions(real.api)
    await real.submit(queue(maxGPUs=1000, deservedGPUs=1000))
    nodes = [FakeNode(name=name) for name in ("a", "b")]
    async with FakeKubelet(real.api, nodes), scheduling(real):
        yield real.api


@pytest.mark.slow
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("table", PLAYED)
async def test_both_schedulers_start_the_pods_that_are_expected(api: Api, table: str, step: int):
    different: dict[tuple[str, str], str] = {}
    played = PLAYED[table][::step]
    for number, each in enumerate(played):
        expected = {name for name, text in each.expect.items() if not text.startswith("!")}
        for scheduler, short in ((THEIRS, "k"), (OURS, "o")):
            try:
                outcome = await play(api, each.case, scheduler, f"{table}-{number}-{short}")
            except AssertionError as error:  # a pod that should start waits
                different[each.source, scheduler] = str(error)
                continue
            if outcome.started != expected:
                different[each.source, scheduler] = f"{sorted(outcome.started)} started"
    sources = {each.source for each in played}
    assert {source for source, _ in different} == DIFFERENCES.keys() & sources, different
