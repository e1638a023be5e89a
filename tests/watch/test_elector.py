"""Elections in virtual time, on one Lease that is kept in memory."""

import asyncio
import json
import re
from types import SimpleNamespace

import pytest

from kai_py.observe.log import is_no_outage
from kai_py.watch.client import Client
from kai_py.watch.elector import Election, Elector, LeadershipLostError, Lease, LeaseSpec
from kai_py.watch.errors import Status, Unreachable, from_status
from tests.watch import virtual_time


class LeaseServer:
    """One Lease."""

    def __init__(self):
        self.lease = None
        self.revision = 0
        self.writes = []

    def get(self, call, body):
        if self.lease is None:
            raise from_status(str(call), Status(code=404))
        return self.lease

    def create(self, call, body):
        if self.lease is not None:
            raise from_status(str(call), Status(code=409, reason="AlreadyExists"))
        return self._store(body)

    def patch(self, call, body):
        if self.lease is None:
            raise from_status(str(call), Status(code=404))
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise from_status(str(call), Status(code=409, reason="Conflict"))
        return self._store({**self.lease, "spec": {**self.lease["spec"], **body["spec"]}})

    def _store(self, lease):
        self.revision += 1
        metadata = {**lease["metadata"], "uid": "lease", "resourceVersion": str(self.revision)}
        self.lease = {**lease, "metadata": metadata}
        self.writes.append(self.lease["spec"]["holderIdentity"])
        return self.lease


class Link:
    """One candidate's connection: up, down (refuses), hangs, deaf (writes, no answer), slow."""

    def __init__(self, server):
        self.server = server
        self.state = "up"

    async def send(self, call, *, timeout_seconds=None):
        await asyncio.sleep(0.01)
        if self.state == "down":
            raise Unreachable("down")
        if self.state == "hangs":
            await asyncio.sleep(3600)
        body = json.loads(call.body) if call.body else None
        answer = json.dumps(getattr(self.server, call.verb)(call, body)).encode()
        if call.verb != "get":
            await asyncio.sleep({"deaf": 3600, "slow": 4.9}.get(self.state, 0))
        return answer


class Candidate:
    """A replica that acts every 50 ms while it leads, and notes when."""

    def __init__(self, server, name, log, *, skew=0.0, duration=15.0):
        self.link = Link(server)
        self.name = name
        self.log = log
        self.lost_at = None
        loop = asyncio.get_running_loop()
        self.clock = lambda: loop.time() + skew
        self.elector = Elector(
            Client(self.link),
            Election(namespace="kube-system", name="kai", identity=name, duration=duration),
            on_lost=self.lost,
            clock=self.clock,
        )
        self.task = asyncio.ensure_future(self.elector.lead(self.work))
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def work(self):
        while True:
            assert self.elector.leading
            self.log.append((asyncio.get_running_loop().time(), self.name))
            await asyncio.sleep(0.05)

    def lost(self):
        self.lost_at = asyncio.get_running_loop().time()
        assert not self.elector.leading

    async def stop(self):
        self.task.cancel()
        await asyncio.wait((self.task,))


def leaders(log):
    """Give the terms of office: who led, from the first to the last act."""
    terms = []
    for time, name in log:
        if terms and terms[-1][0] == name:
            terms[-1] = (name, terms[-1][1], time)
        else:
            terms.append((name, time, time))
    return terms


@pytest.fixture
def server():
    return LeaseServer()


@pytest.fixture
def log():
    return []


@virtual_time.test
async def test_one_leads_and_the_standby_waits(server, log):
    Candidate(server, "a", log)
    await asyncio.sleep(0.1)
    Candidate(server, "b", log)
    await asyncio.sleep(120)
    spec = server.lease["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("a", 15)
    assert spec["leaseTransitions"] == 1
    assert spec["renewTime"].endswith("Z")
    assert 55 <= len(server.writes) <= 61
    assert [name for name, _, _ in leaders(log)] == ["a"]


@virtual_time.test
async def test_candidates_that_start_together_never_both_lead(server, log):
    candidates = [Candidate(server, name, log) for name in "abcde"]
    await asyncio.sleep(60)
    assert sum(candidate.elector.leading for candidate in candidates) == 1
    assert len(leaders(log)) == 1


@pytest.mark.parametrize("state", ["down", "hangs", "deaf"])
@pytest.mark.parametrize("skew", [0.0, -3600.0, 3600.0])
@virtual_time.test
async def test_leader_without_a_server_stops_before_the_standby_starts(state, skew, server, log):
    first = Candidate(server, "a", log)
    await asyncio.sleep(5)
    Candidate(server, "b", log, skew=skew)
    await asyncio.sleep(15)
    first.link.state = state
    cut_at = asyncio.get_running_loop().time()
    await asyncio.sleep(60)
    assert first.lost_at is not None
    assert first.lost_at - cut_at <= 10.1
    assert isinstance(first.task.exception(), LeadershipLostError)
    (first, _, stopped), (second, started, _) = leaders(log)
    assert (first, second) == ("a", "b")
    assert 0 < started - stopped < 20


@virtual_time.test
async def test_time_counts_from_before_a_renewal_not_from_its_slow_answer(server, log):
    first = Candidate(server, "a", log, duration=11.0)
    await asyncio.sleep(1)
    Candidate(server, "b", log, duration=11.0)
    first.link.state = "slow"
    await asyncio.sleep(20)
    first.link.state = "down"
    await asyncio.sleep(30)
    (_, _, stopped), (_, started, _) = leaders(log)
    assert started > stopped


@virtual_time.test
async def test_clean_stop_hands_over_without_waiting(server, log):
    first = Candidate(server, "a", log)
    await asyncio.sleep(5)
    Candidate(server, "b", log)
    await asyncio.sleep(5)
    await first.stop()
    assert first.lost_at is None
    assert server.lease["spec"]["holderIdentity"] == ""
    await asyncio.sleep(5)
    (_, _, stopped), (second, started, _) = leaders(log)
    assert second == "b"
    assert started - stopped < 3


@virtual_time.test
async def test_a_renewal_that_was_written_unnoticed_does_not_keep_the_lease(server, log):
    first = Candidate(server, "a", log)
    await asyncio.sleep(5)
    written, first.link.state = len(server.writes), "deaf"
    await asyncio.sleep(2.5)
    assert len(server.writes) > written
    first.link.state = "up"
    await first.stop()
    assert server.lease["spec"]["holderIdentity"] == ""


@virtual_time.test
async def test_short_trouble_does_not_end_the_leadership(server, log):
    first = Candidate(server, "a", log)
    Candidate(server, "b", log)
    for state in ("down", "hangs"):
        await asyncio.sleep(10)
        first.link.state = state
        await asyncio.sleep(5)
        first.link.state = "up"
    await asyncio.sleep(20)
    assert [name for name, _, _ in leaders(log)] == ["a"]


@virtual_time.test
async def test_lease_taken_by_force_ends_the_leadership_at_the_next_renewal(server, log):
    first = Candidate(server, "a", log)
    await asyncio.sleep(5)
    server.patch(None, {**server.lease, "spec": {"holderIdentity": "admin"}})
    await asyncio.sleep(3)
    assert first.lost_at is not None
    assert isinstance(first.task.exception(), LeadershipLostError)


@virtual_time.test
async def test_a_leader_whose_event_loop_was_blocked_knows_that_it_may_not_act(server, log):
    first = Candidate(server, "a", log)
    await asyncio.sleep(5)
    assert first.elector.leading
    loop = asyncio.get_running_loop()
    first.elector._clock = lambda: loop.time() + 30
    assert not first.elector.leading


@virtual_time.test
async def test_work_that_fails_gives_the_lease_back(server):
    async def work():
        raise RuntimeError("bug")

    elector = Elector(Client(Link(server)), Election("ns", "kai", "a"), on_lost=pytest.fail)
    with pytest.raises(RuntimeError, match="bug"):
        await elector.lead(work)
    assert server.lease["spec"]["holderIdentity"] == ""
    assert not elector.leading


@virtual_time.test
async def test_work_that_ends_gives_its_result(server):
    async def work():
        await asyncio.sleep(30)
        return 42

    loop = asyncio.get_running_loop()
    elector = Elector(
        Client(Link(server)), Election("ns", "kai", "a"), on_lost=pytest.fail, clock=loop.time
    )
    assert await elector.lead(work) == 42


@virtual_time.test
async def test_work_that_is_slow_to_stop_keeps_the_lease_until_it_has(server):
    stopped = []

    async def work():
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(25)
            stopped.append((elector.leading, server.lease["spec"]["holderIdentity"]))

    loop = asyncio.get_running_loop()
    elector = Elector(
        Client(Link(server)), Election("ns", "kai", "a"), on_lost=pytest.fail, clock=loop.time
    )
    task = asyncio.ensure_future(elector.lead(work))
    await asyncio.sleep(5)
    task.cancel()
    await asyncio.wait((task,))
    assert stopped == [(True, "a")]
    assert server.lease["spec"]["holderIdentity"] == ""


@virtual_time.test
async def test_the_holder_reads_the_lease_only_after_others_have_changed_it(server, log):
    first = Candidate(server, "a", log)
    reads, get = [], server.get
    server.get = lambda call, body: (reads.append(call), get(call, body))[1]
    await asyncio.sleep(5)
    assert len(reads) == 1
    server.lease = {
        **server.lease,
        "metadata": {**server.lease["metadata"], "labels": {"a": "b"}, "resourceVersion": "x"},
    }
    await asyncio.sleep(20)
    assert len(reads) == 2
    server.lease = None
    await asyncio.sleep(20)
    assert len(reads) == 3
    assert server.lease["spec"]["holderIdentity"] == "a"
    assert first.lost_at is None
    assert len(server.writes) == pytest.approx(45 / 2, abs=2)
    await first.stop()


@virtual_time.test
async def test_unexpected_errors_end_the_leadership_too(server, log):
    first = Candidate(server, "a", log)
    await asyncio.sleep(5)
    server.patch = lambda call, body: 1 / 0
    await asyncio.sleep(5)
    assert first.lost_at is not None


@virtual_time.test
async def test_a_process_that_may_not_write_the_lease_says_so(server, log):
    """Reading works, so a standby of another leader is fine; alone it can never lead."""

    first = Candidate(server, "a", log)
    await asyncio.sleep(5)
    second = Candidate(server, "b", log)
    patch = server.patch
    forbidden = Status(code=403, reason="Forbidden", message="may not patch leases")

    def refuse(call, body):
        raise from_status(str(call), forbidden)

    await asyncio.sleep(5)
    assert first.elector.problems() == second.elector.problems() == []
    server.patch = refuse
    await asyncio.sleep(20)
    [problem] = second.elector.problems()
    assert problem.startswith("cannot take or renew lease kube-system/kai: ")
    assert "may not patch leases" in problem
    server.patch = patch
    await asyncio.sleep(20)
    assert second.elector.leading
    assert second.elector.problems() == []


@virtual_time.test
async def test_a_lease_server_that_is_away_for_a_moment_is_no_problem(server, log):
    first = Candidate(server, "a", log)
    await asyncio.sleep(5)
    first.link.state = "down"
    await asyncio.sleep(3)
    assert first.elector.problems() == []
    await asyncio.sleep(6)
    assert len(first.elector.problems()) == 1


@pytest.mark.parametrize("state", ["down", "hangs", "deaf"])
@virtual_time.test
async def test_no_message_names_a_negative_wait(state, caplog, server):
    """A loop that was held up finds its deadline passed: there is no attempt and no message."""

    loop, link, jumped, lost = asyncio.get_running_loop(), Link(server), 0.0, []
    elector = Elector(
        Client(link),
        Election("ns", "kai", "a"),
        on_lost=lambda: lost.append(1),
        clock=lambda: loop.time() + jumped,
    )
    leading = asyncio.ensure_future(elector.lead(asyncio.Event().wait))
    await asyncio.sleep(5)
    link.state = state
    await asyncio.sleep(4)
    jumped = 40.0
    with pytest.raises(LeadershipLostError):
        await leading
    assert lost == [1]
    assert not re.search(r"within -|within 0\.0", caplog.text)


@virtual_time.test
async def test_an_outage_is_told_where_the_lease_is_lost_and_not_with_every_attempt(
    caplog, server, log
):
    caplog.set_level("INFO")
    first = Candidate(server, "a", log)
    await asyncio.sleep(5)
    first.link.state = "down"
    await asyncio.sleep(60)
    assert first.lost_at is not None
    with_outages = [each for each in caplog.records if not is_no_outage(each)]
    told = [each.getMessage() for each in caplog.records if is_no_outage(each)]
    assert with_outages
    assert told == ["a leads", "lease kai was not renewed: down"]


@pytest.mark.parametrize(
    ("holder", "seconds", "held_for"),
    [
        (None, 60, 0.0),
        ("", 60, 0.0),
        ("us", 60, 0.0),
        ("other", 60, 60.0),
        ("other", 5, 5.0),
        ("other", None, 15.0),
        ("other", 0, 15.0),
    ],
)
def test_a_lease_is_held_for_as_long_as_its_holder_says(holder, seconds, held_for):
    now = [100.0]
    elector = Elector(
        SimpleNamespace(machine=None),
        Election(namespace="kube-system", name="kai", identity="us"),
        on_lost=lambda: None,
        clock=lambda: now[0],
    )
    spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=seconds)
    elector._observe(Lease(spec=spec))
    now[0] = 100.0 + held_for - 0.1
    elector._observe(Lease(spec=spec))  # seen again, but not renewed
    assert elector._is_held_by_other() is (held_for > 0)
    assert elector.leader.identity == ("other" if held_for else "")
    now[0] = 100.0 + held_for
    assert not elector._is_held_by_other()
    elector._observe(Lease(spec=LeaseSpec(holder_identity=holder, renew_time="later")))
    assert elector._is_held_by_other() is (holder == "other")


def test_times_must_be_in_order():
    with pytest.raises(ValueError, match="renew below duration"):
        Election("ns", "kai", "a", renew=15.0)
