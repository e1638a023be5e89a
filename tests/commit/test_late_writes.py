"""What was sent, and was given up for lost, arrives later: it takes no device from a bound pod.

A pod is fenced by a write of its own: what the answer to it proves.
"""

import asyncio
from contextlib import suppress

import pytest

from kai_py.commit.claims.recovery import find_leftover_claims, release_leftover
from kai_py.commit.pod_state import ReadState, fence_pod
from kai_py.commit.retry import RetryPolicy
from kai_py.commit.settings import CommitSettings
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.resources import PODS
from kai_py.watch.errors import ApiError, TimedOut, Unreachable, from_response
from tests.commit.cluster import (
    NAMESPACE,
    SCHEDULER,
    Cluster,
    assert_nothing_held,
    first,
    gang_of,
    gang_with_claims,
    placed,
    refuse,
    run,
)
from tests.watch import virtual_time

SIZE = 2
SETTINGS = CommitSettings(retry=RetryPolicy(attempts=4, base=0.1, maximum=1.0))
RELEASE = "release"
BINDING = "binding"


def what(call):
    """A call of those that may be late, "" for others."""
    if call.kind == "Pod/binding":
        return BINDING
    is_release = b'"allocation":null' in (call.body or b"") or b'"$patch"' in (call.body or b"")
    return RELEASE if is_release else ""


class Late:
    """Keeps the first call of a kind for each object; what is sent again meets ``error``."""

    def __init__(self, cluster, kinds, error):
        self.cluster, self.kinds, self.error = cluster, kinds, error
        self.kept = {}

    async def send(self, call, *, timeout_seconds=None):
        if what(call) not in self.kinds:
            return await self.cluster.send(call)
        if call.path not in self.kept:
            self.kept[call.path] = call
            raise TimedOut(f"{call}: no answer in time")
        if self.error is None:
            raise Unreachable(f"{call}: connection refused")
        raise from_response(str(call), self.error, b'{"code":%d}' % self.error, {})

    async def arrive(self):
        """What was kept reaches the server, which may refuse it."""
        for call in self.kept.values():
            with suppress(ApiError):
                await self.cluster.send(call)


@pytest.mark.parametrize("error", [None, 403, 500])
@virtual_time.test
async def test_a_binding_that_arrives_after_its_claims_are_released_is_refused(error):
    cluster = Cluster()
    gang = gang_with_claims(cluster, SIZE)

    late = Late(cluster, {BINDING}, error)
    outcome = await run(cluster, gang, SETTINGS, late)
    assert not outcome.bound
    assert_nothing_held(cluster)
    await late.arrive()
    assert len(late.kept) == SIZE
    assert_nothing_held(cluster)
    # The next attempt is not hindered.
    assert len((await run(cluster, gang)).bound) == SIZE


@virtual_time.test
async def test_a_binding_made_before_the_leader_was_replaced_is_refused_after_recovery():
    """A former leader's binding, of which the new one knows nothing, and the leftover claim."""
    cluster = Cluster()
    gang = gang_with_claims(cluster, SIZE)

    late = Late(cluster, {BINDING}, None)
    with suppress(TimeoutError):
        await asyncio.wait_for(run(cluster, gang, SETTINGS, late), 0.5)
    leftovers = find_leftover_claims(cluster.claims(), cluster.pods(), {SCHEDULER}, set())
    for leftover in leftovers:
        assert await release_leftover(cluster.access(), leftover) == ""
    assert len(late.kept) == len(leftovers) == SIZE
    await late.arrive()
    assert_nothing_held(cluster)


@virtual_time.test
async def test_a_binding_that_arrives_before_recovery_keeps_its_claim():
    cluster = Cluster()
    gang = gang_with_claims(cluster, SIZE)

    late = Late(cluster, {BINDING}, None)
    with suppress(TimeoutError):
        await asyncio.wait_for(run(cluster, gang, SETTINGS, late), 0.5)
    leftovers = find_leftover_claims(cluster.claims(), cluster.pods(), {SCHEDULER}, set())
    await late.arrive()
    for leftover in leftovers:
        assert await release_leftover(cluster.access(), leftover) != ""
    assert len(cluster.nodes()) == len(cluster.devices()) == SIZE


@pytest.mark.parametrize("shared", [False, True])
@virtual_time.test
async def test_a_release_that_arrives_after_the_next_binding_is_refused(shared):
    """Its gang was refused and its claims released; the answer to that was lost."""
    cluster = Cluster()
    gang = gang_with_claims(cluster, SIZE)
    if shared:
        [first, *_], claim = gang.pods, gang.pods[0].reserve[0]
        other = cluster.add_pod("other")
        cluster.allocate(claim.name, first.allocate[0].allocation, other)
        gang = gang_of(placed(first.pod, "node-a", claim))

    late = Late(cluster, {RELEASE}, None)
    for _ in gang.pods:
        cluster.fail_once("create", "Pod/binding", refuse(403, "Forbidden"))
    assert not (await run(cluster, gang, SETTINGS, late)).bound
    assert len((await run(cluster, gang)).bound) == len(gang.pods)
    assert len(late.kept) == len(gang.pods)
    await late.arrive()
    for placement in gang.pods:
        status = cluster.claim(placement.reserve[0].name).status
        assert status.allocation is not None
        assert placement.pod.uid in {each.uid for each in status.reserved_for}


@pytest.mark.parametrize(
    ("before_the_write", "state"),
    [
        ("nothing", ReadState.WAITING),
        ("deleted", ReadState.GONE),
        ("recreated", ReadState.GONE),
        ("forbidden", ReadState.UNKNOWN),
    ],
)
async def test_the_answer_proves_the_state(before_the_write, state):
    cluster = Cluster()
    ref = cluster.add_pod("a")

    def change():
        if before_the_write != "nothing":
            delete(cluster.api, PODS, "a", NAMESPACE, DeleteOptions(grace_seconds=0))
        if before_the_write == "recreated":
            cluster.add_pod("a")

    forbidden = before_the_write == "forbidden"
    cluster.fail_once("patch", "Pod", refuse(403, "Forbidden") if forbidden else first(change))
    reading = await fence_pod(cluster.access(), ref)
    assert reading.state is state
    assert bool(reading.problem) is forbidden
