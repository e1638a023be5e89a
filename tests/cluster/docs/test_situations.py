"""Gangs that wait on the real control plane: twelve stages, and where reasons meet.

The explanation names the stage, and taking the steps of its first suggestion, as they are, starts
the gang and costs the gangs that it names. ``make test`` does this for each stage here and for
every situation in a simulation (tests/simulate/test_situations.py).
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from kai_py.api.choices import Subject
from kai_py.cli.reading import read_now
from kai_py.config import Configuration
from kai_py.observe.explanation import Explanation
from kai_py.observe.suggestion import SuggestionStep, Verb
from kai_py.plan.plan import Stage
from kai_py.simulate.explained_cluster import explain_cluster
from tests.cluster.fake_kubelet.nodes import FakeNode
from tests.support.cluster.api import Api, ApiError
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.scheduling import Running, install, install_definitions, scheduling
from tests.support.cluster.view import View
from tests.support.mixtures import MIXTURES
from tests.support.pending.names import ACCOUNTS, NAMES
from tests.support.pending.requirements import REQUIREMENTS
from tests.support.pending.sizes import SIZES
from tests.support.records import replace
from tests.support.situations import SITUATIONS, Situation, few_daily


@pytest.mark.parametrize(
    "situation", few_daily([*SITUATIONS, *MIXTURES, *NAMES, *ACCOUNTS, *SIZES, *REQUIREMENTS])
)
async def test_the_stage_is_named_and_the_first_suggestion_starts_the_gang(
    real: Cluster, situation: Situation
):
    view = View(real.api)
    await install_definitions(real.api)
    for definition in situation.definitions:
        await install(real.api, definition)
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(scheduling(real))
        await stack.enter_async_context(real.run_nodes(situation.nodes))
        await real.submit(*situation.objects)
        for document, pods in situation.before:
            await real.submit(document)
            await view.wait_bound(document["metadata"]["name"], pods)
        if situation.patience:
            await eventually(lambda: promises(running), what="nodes reserved for the pending gang")
        await real.submit(*situation.waits)
        if isinstance(situation.stage, Stage):
            message = await told(running, situation)
            found = await explained(real, situation)
            assert (found.state, found.message) == (situation.stage, message)
        else:
            found = await eventually(lambda: absent(real, situation), what="why it is no gang")
        first = found.suggestions[0]
        assert first.text == situation.suggests
        assert await view.bound("waiting") == {}
        for step in (each for each in reversed(first.steps) if each.verb is Verb.REPLACE):
            await take_away(real.api, step)
        added = added_nodes(situation, first.steps)
        await stack.enter_async_context(real.run_nodes(added))
        for step in first.steps:
            if step.verb is not Verb.ADD_NODES:
                await take(real, step)
        await view.wait_bound("waiting", situation.pods, within=30)
        for gang in first.evicts:
            await eventually(lambda gang=gang: has_lost(view, gang), what=f"{gang} preempted")
        for document, _ in situation.before:
            name = document["metadata"]["name"]
            if f"default/Job/{name}" not in first.evicts:
                assert not await has_lost(view, f"default/Job/{name}")


async def promises(running: Running) -> bool:
    """Whether the last plan keeps nodes for a gang."""
    view = running.scheduler.last_view
    return view is not None and bool(view.plan.promised_nodes)


async def has_lost(view: View, gang: str) -> bool:
    """Whether an event says that a Job lost pods."""
    events = await view.events(kind="Job", name=gang.rpartition("/")[2], reason="Preempted")
    return bool(events)


async def told(running: Running, situation: Situation) -> str:
    """Wait until the scheduler says which stage stops the gang; give the sentence."""

    async def said() -> str:
        view = running.scheduler.last_view
        waiting = {each.gang: each for each in view.plan.unplaced} if view is not None else {}
        found = waiting[situation.gang]
        assert (found.stage, situation.says in found.message) == (situation.stage, True), found
        return found.message

    return await eventually(said, what=f"the stage of {situation.gang}")


async def explained(cluster: Cluster, situation: Situation) -> Explanation:
    """What ``kai-py explain`` answers."""
    documents = await read_now(str(cluster.kubeconfig), "")
    [found] = await asyncio.to_thread(
        explain_cluster,
        documents,
        Configuration(),
        now=time.time(),
        subject=Subject.GANG,
        name=situation.gang,
    )
    return found


async def absent(cluster: Cluster, situation: Situation) -> Explanation:
    """Wait until the cluster has what makes a workload no gang; give the explanation."""
    found = await explained(cluster, situation)
    assert found.state == situation.stage
    assert situation.says in found.message
    return found


async def take(cluster: Cluster, step: SuggestionStep) -> None:
    """Do what a step says."""
    if step.verb is Verb.PATCH:
        await cluster.api.patch(await path(cluster.api, step), step.patch)
    elif step.verb is Verb.DELETE:
        await take_away(cluster.api, step)
    else:
        assert step.document is not None, step
        await cluster.submit(step.document)


def added_nodes(situation: Situation, steps: Sequence[SuggestionStep]) -> list[FakeNode]:
    """The nodes that the steps add."""
    return [
        replace(node, name=f"{node.name}-more-{number}")
        for step in steps
        if step.verb is Verb.ADD_NODES
        for node in situation.nodes
        if node.name == step.name
        for number in range(step.count)
    ]


async def take_away(api: Api, step: SuggestionStep) -> None:
    """Delete an object with what it owns, and wait until it is gone."""
    where = await path(api, step)
    await api.delete(where, propagationPolicy="Background")

    async def gone() -> bool:
        try:
            await api.get(where)
        except ApiError as error:
            return error.code == 404
        return False

    await eventually(gone, what=f"{step.kind} {step.name} gone")


async def path(api: Api, step: SuggestionStep) -> str:
    found = (await api.types(step.api_version))[step.kind]
    return found.path(step.name, namespace=step.namespace)
