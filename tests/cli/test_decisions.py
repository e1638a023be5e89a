"""kai-py decisions, against the HTTP server of a scheduler."""

import asyncio
import json
import re
import sys

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from kai_py.cli import decisions, scheduler_http
from kai_py.cli.errors import CommandError, UnreachableError
from kai_py.cli.scheduler_http import SchedulerAddress
from kai_py.observe import http_api
from kai_py.observe.decision_log import DecisionLog
from kai_py.observe.http import Probes, serve
from kai_py.observe.http_access import HttpAccess
from kai_py.observe.http_api import ApiSource
from kai_py.observe.kept_history import ShareHistory
from kai_py.observe.token_review import TOKEN_VARIABLE
from tests.observe.shown import view_of
from tests.support.records import replace
from tests.support.worlds import gang, world

WAITS = world({"n1": 4}, gang("train", pods=2, gpus=8)).snapshot(0.0)
SNAPSHOT = world({"n1": 16}, gang("train", pods=2, gpus=8)).snapshot(60.0)


@pytest.fixture
def log():
    log = DecisionLog()
    log.record(view_of(WAITS).plan, WAITS.gangs, WAITS.now)
    return log


@pytest.fixture
async def url(log):
    source = ApiSource(lambda: view_of(SNAPSHOT), log, ShareHistory())
    probes = Probes(CollectorRegistry(), list, list, source)
    async with serve(probes, HttpAccess("127.0.0.1"), 0) as port:
        yield f"http://127.0.0.1:{port}/"


def lines(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


async def test_decisions_are_json_lines(url, log, capsys):
    log.record(view_of(SNAPSHOT).plan, SNAPSHOT.gangs, SNAPSHOT.now)
    await asyncio.to_thread(decisions.command, url=url)
    assert [(d["number"], d["kind"]) for d in lines(capsys)] == [(1, "pending"), (2, "placed")]
    await asyncio.to_thread(decisions.command, url=url, since="1")
    assert [d["kind"] for d in lines(capsys)] == ["placed"]
    for option in ("last", "since"):
        await asyncio.to_thread(decisions.command, url=url, **{option: "30s"})
        [placed] = lines(capsys)
        assert (placed["kind"], placed["nodes"]) == ("placed", ["n1"])
        assert placed["message"].startswith("it fits into idle capacity")


async def test_that_there_is_none_is_told_beside_the_output(url, capsys):
    await asyncio.to_thread(decisions.command, url=url, since="9")
    assert capsys.readouterr() == ("", "no decision was made in this period\n")


async def test_followed_they_come_as_they_are_made(url, log, capsys):
    following = asyncio.create_task(
        decisions._print(SchedulerAddress(url), (), decisions._print_json, follow=True)
    )
    seen = ""
    while "pending" not in seen:
        await asyncio.sleep(0.02)
        seen += capsys.readouterr().out
    log.record(view_of(SNAPSHOT).plan, SNAPSHOT.gangs, SNAPSHOT.now)
    while "placed" not in seen:
        await asyncio.sleep(0.02)
        seen += capsys.readouterr().out
    following.cancel()
    assert [json.loads(line)["number"] for line in seen.splitlines()] == [1, 2]


@pytest.mark.slow
async def test_followed_across_a_restart_nothing_is_missed(log, capsys, monkeypatch):
    monkeypatch.setattr(decisions, "FIRST_PAUSE", 0.05)
    source = ApiSource(lambda: view_of(SNAPSHOT), log, ShareHistory())
    probes = Probes(CollectorRegistry(), list, list, source)

    async def printed(wanted):
        seen = ""
        while seen.count("\n") < wanted:
            await asyncio.sleep(0.02)
            seen += capsys.readouterr().out
        return [json.loads(line)["number"] for line in seen.splitlines()]

    log.record(view_of(SNAPSHOT).plan, SNAPSHOT.gangs, SNAPSHOT.now)
    async with serve(probes, HttpAccess("127.0.0.1"), 0) as port:
        url = f"http://127.0.0.1:{port}"
        address, query = SchedulerAddress(url), (("since", "1"),)
        following = asyncio.create_task(
            decisions._print(address, query, decisions._print_json, follow=True)
        )
        assert await printed(1) == [2]
        log.record(view_of(WAITS).plan, WAITS.gangs, WAITS.now)
        assert await printed(1) == [3]
    fresh = DecisionLog()
    fresh.record(view_of(WAITS).plan, WAITS.gangs, WAITS.now)
    monkeypatch.setattr(http_api, "PROCESS_ID", "later")
    again = replace(probes, source=replace(source, decisions=fresh))
    async with serve(again, HttpAccess("127.0.0.1"), port):
        assert await printed(1) == [1]
    following.cancel()


async def test_what_goes_wrong_is_told(url, tmp_path, monkeypatch):
    with pytest.raises(CommandError, match="--last"):
        decisions.command(url=url, last="soon")
    with pytest.raises(CommandError, match="--since"):
        decisions.command(url=url, since="yesterday")
    with pytest.raises(CommandError, match="No such file"):
        await asyncio.to_thread(decisions.command, url=url, token_file=tmp_path / "token")
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(CommandError, match="bytes: is not UTF-8 text"):
        await asyncio.to_thread(decisions.command, url=url, token_file=tmp_path / "bytes")
    with pytest.raises(CommandError, match="port-forward"):
        await asyncio.to_thread(decisions.command, url="http://127.0.0.1:1")
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    monkeypatch.setattr(scheduler_http, "TOKEN_VARIABLE", "ANOTHER_VARIABLE")
    with pytest.raises(
        CommandError, match=r"401: a bearer token is required.*--token-file or \$KAI_PY_HTTP_TOKEN"
    ):
        await asyncio.to_thread(decisions.command, url=url)


async def test_decisions_of_another_version_are_named_as_such(url, monkeypatch):
    async def of_another_version(*_):
        return [msgspec.Raw(b'{"number": "first"}')]

    monkeypatch.setattr(decisions, "_read_decisions", of_another_version)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(CommandError, match="the scheduler is of another version"):
        await asyncio.to_thread(decisions.command, url=url)


async def test_on_a_terminal_they_are_sentences(url, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    await asyncio.to_thread(decisions.command, url=url)
    first = capsys.readouterr().out.splitlines()[0]
    assert re.search(r"/train, queue \S+: pending \(\w+\):$", first)
    await asyncio.to_thread(decisions.command, url=url, json=True)
    assert [d["kind"] for d in lines(capsys)] == ["pending"]


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8080", "there", "ftp://there", "http://", "http://a:99999", "http://[::1"]
)
async def test_what_is_no_url_is_told(url):
    with pytest.raises(CommandError, match="is not a URL: write http://HOST:PORT") as told:
        await asyncio.to_thread(decisions.command, url=url)
    assert not isinstance(told.value, UnreachableError)


@pytest.mark.parametrize(
    ("named", "asked"),
    [
        ({}, ["http://127.0.0.1:8080", "kai-py/kai-py"]),
        ({"url": "http://there"}, ["http://there"]),
        ({"service": "other/kai"}, ["other/kai"]),
    ],
)
def test_the_service_is_asked_where_none_answers_on_this_machine(named, asked):
    tried = []

    def ask(address):
        tried.append(address.url or address.service)
        raise UnreachableError("no response")

    with pytest.raises(CommandError, match="no response"):
        decisions._ask_somewhere(SchedulerAddress(**named), ask)
    assert tried == asked
