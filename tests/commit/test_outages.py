"""No outage, and no error on the read that follows it, takes a device from a bound pod."""

import asyncio

import pytest

from kai_py.commit.claims.recovery import LeftoverTracker, find_leftover_claims
from kai_py.commit.retry import RetryPolicy
from kai_py.commit.settings import CommitSettings
from kai_py.plan.plan import Plan
from kai_py.watch.errors import TimedOut, Unreachable, from_response
from tests.commit.assume_cache import RecordingAssumeCache
from tests.commit.cluster import SCHEDULER, Cluster, gang_with_claims
from tests.watch import virtual_time

SIZE = 2
ERRORS = ("401", "403", "404 of a proxy", "404 of the path", "410", "500", "503", "garbage", "{}")
STATUSES = {
    "401": (401, b'{"code":401,"reason":"Unauthorized"}'),
    "403": (403, b'{"code":403,"reason":"Forbidden","details":{"name":"worker-0","kind":"pods"}}'),
    "404 of a proxy": (404, b"<html>no backend</html>"),
    "404 of the path": (404, b'{"code":404,"reason":"NotFound","details":{}}'),
    "410": (410, b'{"code":410,"reason":"Expired"}'),
    "500": (500, b"oops"),
    "503": (503, b""),
}
ANSWERS = {"garbage": b"<html>hello</html>", "{}": b"{}"}


class Outage:
    """Loses the answers of bindings, then every call for a while, then spoils reads of pods."""

    def __init__(self, cluster, clock, seconds, error, *, arrives):
        self.cluster, self.clock, self.seconds, self.error = cluster, clock, seconds, error
        self.arrives, self.began, self.spoiled = arrives, None, 0

    async def send(self, call, *, timeout_seconds=None):
        if call.kind == "Pod/binding" and self.began is None and self.seconds:
            self.began = self.clock()
        if self.began is not None and self.clock() < self.began + self.seconds:
            if call.kind == "Pod/binding" and self.arrives(call):
                await self._arrive(call)
                raise TimedOut(f"{call}: no answer")
            raise Unreachable(f"{call}: refused")
        if call.kind == "Pod/binding" and not self.spoiled:
            self.spoiled = 1
            if self.arrives(call):
                await self._arrive(call)
            return self._spoil(call)
        if (call.verb, call.kind) == ("get", "Pod") and self.spoiled < 4:
            self.spoiled += 1
            return self._spoil(call)
        return await self.cluster.send(call)

    async def _arrive(self, call):
        try:
            await self.cluster.send(call)
        except Exception:  # it had arrived before
            return

    def _spoil(self, call):
        if self.error in ANSWERS:
            if call.verb == "get":
                return ANSWERS[self.error]
            raise TimedOut(f"{call}: no answer")
        code, body = STATUSES[self.error]
        raise from_response(str(call), code, body, {})


SETTINGS = CommitSettings(retry=RetryPolicy(attempts=8, base=0.1, maximum=10.0), claim_grace=30.0)


def check(seconds, error, arrived):
    """A gang meets an outage of ``seconds``; the bindings of ``arrived`` pods got through."""
    cluster = Cluster()
    gang = gang_with_claims(cluster, SIZE)

    async def main():
        loop = asyncio.get_running_loop()
        names = [placement.pod.name for placement in gang.pods[:arrived]]
        transport = Outage(
            cluster,
            loop.time,
            seconds,
            error,
            arrives=lambda call: any(f"/{name}/" in call.path for name in names),
        )
        cache = RecordingAssumeCache()
        committer = cluster.committer(cache, transport=transport, settings=SETTINGS)
        committer.commit(Plan(placements=(gang,)), now=0.0)
        late = cluster.pods()  # a watch of pods that never moves
        tracker = LeftoverTracker(SETTINGS.claim_grace)
        for _ in range(60):
            await asyncio.sleep(10.0)
            _assert_bound_pods_have_devices(cluster)
            in_use = committer.pods_in_flight | cache.assumed_pods()
            found = find_leftover_claims(cluster.claims(), late, {SCHEDULER}, in_use)
            committer.release_leftovers(tracker.due(found, loop.time()))
        assert await committer.drain(5.0)
        _assert_bound_pods_have_devices(cluster)
        assert cluster.devices().keys() == {
            f"gpu-{name.removeprefix('worker-')}" for name in cluster.nodes()
        }, "a device is held by no pod"
        assert cache.assumed.keys() == {
            placement.pod.uid for placement in gang.pods if placement.pod.name in cluster.nodes()
        }

    virtual_time.run(main())


def _assert_bound_pods_have_devices(cluster):
    for name in cluster.nodes():
        claim = cluster.claim(f"gpu-{name.removeprefix('worker-')}")
        assert claim.status.allocation is not None, f"{name} lost its devices"
        assert [each.name for each in claim.status.reserved_for] == [name]


kinds = pytest.mark.parametrize("error", ERRORS)
points = pytest.mark.parametrize("arrived", range(SIZE + 1))


@kinds
@points
def test_an_outage_takes_no_device_and_leaves_none_held(error, arrived):
    for seconds in (0, 1, 13, 23, 36, 47, 62, 120):
        check(seconds, error, arrived)


@pytest.mark.nightly
@kinds
@points
def test_no_length_of_an_outage_takes_a_device(error, arrived):
    for seconds in range(121):
        check(seconds, error, arrived)
