"""What a standby answers, and what is kept of the past."""

import json
from contextlib import asynccontextmanager

import aiohttp
import pytest

from kai_py.observe import kept_history
from kai_py.observe.http import serve
from kai_py.observe.http_access import HttpAccess
from kai_py.observe.http_forward import Replica, is_address, own_address
from kai_py.observe.kept_history import ShareHistory, ShareSample, packed_shares, unpacked_shares
from tests.observe.shown import Shown
from tests.support.records import replace
from tests.support.worlds import gang, world

LEADER = Replica("a", leads=True, leader="a")


@asynccontextmanager
async def replica_of(which, *snapshots, token_file=None):
    """Serve a replica; yields its URL."""
    probes = Shown(*snapshots).probes()
    probes = replace(probes, source=replace(probes.source, replica=lambda: which))
    async with serve(probes, HttpAccess("127.0.0.1", token_file), 0) as port:
        yield f"http://127.0.0.1:{port}"


async def get(url, **headers):
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, answer.headers, await answer.text()


@pytest.fixture
async def leader():
    async with replica_of(LEADER, world({"n": 8}, gang("train", pods=9)).snapshot(0.0)) as url:
        yield url


async def test_a_standby_passes_on_what_is_asked(leader):
    async with replica_of(Replica("b", False, "a", leader)) as standby:
        for path in ("/v1/state", "/v1/gangs", "/v1/decisions?since=0", "/v1/none"):
            there, here = await get(f"{leader}{path}"), await get(f"{standby}{path}")
            assert (there[0], there[2]) == (here[0], here[2])
            assert here[1]["X-Kai-Replica"] == "a"
        status, headers, _ = await get(f"{standby}/v1/state")
        assert (headers["X-Kai-Leads"], status) == ("true", 200)
        assert (await get(f"{standby}/v1/state", **{"If-None-Match": headers["ETag"]}))[0] == 304
        status, headers, text = await get(f"{standby}/v1/replica")
        assert json.loads(text) == {"name": "b", "leads": False, "leader": "a", "address": leader}
        assert (headers["X-Kai-Replica"], headers["X-Kai-Leads"]) == ("b", "false")


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
async def test_only_get_is_answered_by_any_replica(leader, method):
    """An answer in parts has no end for the reader of a HEAD; a standby took all for GET."""
    async with (
        replica_of(Replica("b", False, "a", leader)) as standby,
        aiohttp.ClientSession() as session,
    ):
        for url in (leader, standby):
            for path in ("/v1/state", "/v1/events", "/v1/replica"):
                async with session.request(method, f"{url}{path}") as answer:
                    assert (answer.status, answer.headers["Allow"]) == (405, "GET"), url + path


@pytest.mark.parametrize("encoding", [None, "gzip"])
async def test_a_standby_compresses_only_for_readers_who_take_that(leader, encoding):
    headers = {} if encoding is None else {"Accept-Encoding": encoding}
    async with (
        replica_of(Replica("b", False, "a", leader)) as standby,
        aiohttp.ClientSession(skip_auto_headers=["Accept-Encoding"]) as session,
    ):
        for url in (leader, standby):
            async with session.get(f"{url}/v1/state", headers=headers) as answer:
                assert answer.headers.get("Content-Encoding") == encoding


async def test_what_is_shown_ages_only_where_changes_may_be_missed():
    """In a quiet cluster the last cycle may be minutes ago, and its state is that of now."""
    shown = Shown(world({"n": 8}).snapshot(0.0))
    probes = replace(shown.probes(), now=lambda: shown.now() + 240.0)
    missed = replace(probes, unready=lambda: ["the watch of pods has received nothing"])
    stuck = replace(probes, unhealthy=lambda: ["the cycle is stuck"])
    ages = []
    for each in (probes, missed, stuck):
        async with serve(each, HttpAccess("127.0.0.1"), 0) as port:
            headers = (await get(f"http://127.0.0.1:{port}/v1/state"))[1]
            ages.append(float(headers["X-Kai-Data-Age"]))
    assert ages == [0.0, 240.0, 240.0]


@pytest.mark.slow
async def test_streams_are_passed_on_as_they_come(leader):
    async with (
        replica_of(Replica("b", False, "a", leader)) as standby,
        aiohttp.ClientSession() as session,
        session.get(f"{standby}/v1/events?since=0") as answer,
    ):
        assert b"event: cycle" in await answer.content.readuntil(b"event: cycle")


async def test_the_token_is_needed_here_and_there(tmp_path):
    token = tmp_path / "token"
    token.write_text("secret")
    async with (
        replica_of(LEADER, world({}).snapshot(0.0), token_file=token) as there,
        replica_of(Replica("b", False, "a", there), token_file=token) as standby,
    ):
        assert (await get(f"{standby}/v1/state"))[0] == 401
        assert (await get(f"{standby}/v1/state", Authorization="Bearer secret"))[0] == 200
        own = {"X-Kai-Authorization": "Bearer secret"}
        assert (await get(f"{standby}/v1/state", **own))[0] == 200


@pytest.mark.parametrize(
    ("which", "reason"),
    [
        (Replica("b", False), "no replica leads at present"),
        (Replica("b", False, "a"), "a leads, at an unknown address"),
        (Replica("b", False, "a", "http://example.com:80"), "at an unknown address"),
        (Replica("b", False, "a", "http://127.0.0.1:1"), "a leads and cannot be reached"),
    ],
)
async def test_a_standby_without_a_leader_says_so(which, reason):
    async with replica_of(which) as standby:
        status, _, text = await get(f"{standby}/v1/state")
        assert (status, reason in text) == (503, True), text
        assert (await get(f"{standby}/readyz"))[0] == 200
        assert (await get(f"{standby}/"))[0] == 200


async def test_two_that_stand_by_do_not_pass_a_request_to_and_fro():
    async with (
        replica_of(Replica("b", False, "c", "http://127.0.0.1:1")) as b,
        replica_of(Replica("c", False, "b", b)) as c,
    ):
        status, _, text = await get(f"{c}/v1/state")
        assert (status, text) == (503, "replica b is a standby\n")


@pytest.mark.parametrize(
    ("url", "valid"),
    [
        ("http://10.1.2.3:8080", True),
        ("http://[fd00::1]:8080", True),
        ("http://10.1.2.3", False),
        ("https://10.1.2.3:8080", False),
        ("http://10.1.2.3:8080/path", False),
        ("http://user@10.1.2.3:8080", False),
        ("http://10.1.2.3:99999", False),
        ("http://localhost:80", False),
        ("", False),
    ],
)
def test_addresses(url, valid):
    assert is_address(url) is valid


def test_own_address():
    assert own_address("10.1.2.3", 80, "") == "http://10.1.2.3:80"
    assert own_address("localhost", 80, "") == "http://127.0.0.1:80"
    assert own_address("0.0.0.0", 80, "https://127.0.0.1:6443") == "http://127.0.0.1:80"
    assert own_address("0.0.0.0", 80, "https://no.such.host.invalid:1") == ""
    assert own_address("scheduler", 80, "") == ""


def samples(number, queues=3):
    return tuple(
        ShareSample(float(time), {f"q{i}": time * i / 7 for i in range(queues)}, {"q0": 1.0})
        for time in range(number)
    )


def test_kept_samples_are_bounded(monkeypatch):
    assert unpacked_shares(packed_shares(samples(50))) == samples(50)
    kept = unpacked_shares(packed_shares(samples(1000)))
    assert len(kept) <= kept_history.MAX_SAMPLES_KEPT
    assert kept[-1].time == 999.0
    assert kept[0].time < 40.0
    monkeypatch.setattr(kept_history, "MAX_SHARES_BYTES", 2000)
    text = packed_shares(samples(100, queues=40))
    assert 0 < len(text) <= 2000
    assert unpacked_shares(text)[-1].time == 99.0
    monkeypatch.setattr(kept_history, "MAX_SHARES_BYTES", 10)
    assert packed_shares(samples(100)) == ""


@pytest.mark.parametrize("text", ["x", "eJw=", packed_shares(())[:-4], "e30="])
def test_what_cannot_be_read_is_no_history(text):
    assert unpacked_shares(text) == ()


def test_a_recalled_history_comes_before_ones_own():
    history = ShareHistory()
    history.recall(samples(10))
    assert [each.time for each in history.samples] == [float(time) for time in range(10)]
    history.recall(samples(5))
    assert len(history.samples) == 10
    history.recall(samples(1000)[:0])
    later = ShareHistory()
    later.recall(samples(1000))
    assert len(later.samples) < 360
    assert later.samples[0].time == 0.0
