"""The demo from outside: its stream, its log, its terminal, its kubeconfig, its verdict."""

import asyncio
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections import defaultdict
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from kai_py.cli import demo, main
from kai_py.demo import run as demo_run
from kai_py.demo.script import Script, script_for
from kai_py.demo.workloads import DemoWorkload, job_manifest
from kai_py.watch.credentials import Kubeconfig
from kai_py.watch.http_transport import connect
from kai_py.watch.kinds import JOBS, PODS, QUEUES
from tests.support.cluster.eventually import eventually
from tests.support.patience import patience
from tests.support.repository import KAI_PY

pytestmark = pytest.mark.cluster

SPEED = ("--speed", "10")
STYLE = re.compile(r"\x1b\[[0-9;]*m")
GANGS = {"llm": 4, "protein": 2, "vision": 8, "urgent": 5, "peak": 10}


@pytest.fixture(scope="module")
def stream():
    run = subprocess.run(
        [*KAI_PY, "demo", "--json", *SPEED],
        capture_output=True,
        text=True,
        timeout=patience(120),
        check=False,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def of_gang(stream, name):
    return [each for each in stream if each["type"] == "pod" and each["gang"].endswith(f"/{name}")]


def first(stream, **wanted):
    """The position of the first line with these values."""
    return next(
        index
        for index, line in enumerate(stream)
        if all(line.get(key) == value for key, value in wanted.items())
    )


@pytest.mark.parametrize("name", GANGS)
def test_of_a_gang_all_run_or_none(stream, name):
    bound, whole = set(), False
    for line in of_gang(stream, name):
        match line["change"]:
            case "bound":
                bound.add(line["pod"])
                whole = whole or len(bound) == GANGS[name]
            case "running":
                assert whole, f"{line['pod']} runs while {len(bound)} are bound"
            case "terminating" | "succeeded" | "failed" | "deleted":
                assert whole or line["pod"] not in bound, (
                    "no pod of a gang that is starting is evicted"
                )
                bound.discard(line["pod"])
                whole = whole and bool(bound)
    assert not bound, "no part of it is left"


def test_a_gang_waits_and_then_starts_whole(stream):
    waits = first(stream, type="event", reason="FailedScheduling", kind="Job", name="vision")
    assert stream[waits]["note"].startswith("8 pods must start together but only ")
    before = [line for line in stream[:waits] if line.get("gang") == "default/Job/vision"]
    assert {line["change"] for line in before if line["type"] == "pod"} == {"created"}
    starts = [line for line in of_gang(stream[waits:], "vision") if line["change"] == "bound"]
    assert len({line["pod"] for line in starts[:8]}) == 8


def test_a_higher_priority_preempts_and_the_gang_returns(stream):
    evicted = {line["pod"] for line in stream if line.get("action") == "preempt"}
    vision = of_gang(stream, "vision")
    assert evicted == {line["pod"] for line in vision if line["change"] == "terminating"}
    assert len(evicted) == 8
    bound = [line["pod"] for line in vision if line["change"] == "bound"]
    assert len(set(bound)) == 16, "eight pods twice"
    gone = max(
        index
        for index, line in enumerate(stream)
        if line["type"] == "pod" and line["pod"] in evicted and line["change"] == "terminating"
    )
    urgent = first(stream, type="pod", gang="default/Job/urgent", change="bound")
    assert gone < urgent < first(stream, type="pod", pod=bound[8], change="bound")


def test_reclaim_leaves_the_elastic_gang_its_floor(stream):
    reclaimed = {line["pod"] for line in stream if line.get("action") == "reclaim"}
    assert len(reclaimed) == 1
    bound, fewest = set(), None
    for line in of_gang(stream, "ablation"):
        if line["change"] == "bound":
            bound.add(line["pod"])
        elif line["change"] == "terminating":
            bound.discard(line["pod"])
            fewest = len(bound)
        elif line["change"] == "succeeded":
            break
    assert (fewest, len(bound)) == (4, 5)


def test_no_device_is_held_twice_and_no_queue_passes_its_maximum(stream):
    holders = defaultdict(set)
    for line in stream:
        for device in line["devices"] if line["type"] == "claim" else ():
            if line["change"] == "allocated":
                holders[device].add(line["claim"])
            else:
                holders[device].discard(line["claim"])
            assert len(holders[device]) <= 1, device
        for queue in line["queues"] if line["type"] == "queues" else ():
            assert queue["allocated"] <= queue["maximum"], queue


def test_the_stream_ends_with_the_summary(stream):
    summary = stream[-1]
    assert summary["type"] == "summary"
    assert summary["missing"] == []
    assert (summary["preemptions"], summary["reclaims"], summary["jobs_completed"]) == (8, 1, 6)
    assert summary["pods_bound"] == sum(line.get("change") == "bound" for line in stream)
    assert [line["number"] for line in stream if line["type"] == "step"] == list(range(1, 12))
    assert not [line for line in stream if line["type"] == "log"], "nothing to warn of"


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A run without a terminal until nothing runs, and the picture that it draws."""
    picture = tmp_path_factory.mktemp("demo") / "demo.svg"
    run = subprocess.run(
        [*KAI_PY, "demo", "--until-idle", "--svg", str(picture), *SPEED],
        capture_output=True,
        text=True,
        timeout=patience(120),
        check=False,
        env={**os.environ, "FORCE_COLOR": "", "TERM": "xterm-256color"},
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr
    return run, picture


def test_without_a_terminal_it_is_a_plain_log_until_nothing_runs(logged):
    run, _ = logged
    assert "\x1b" not in run.stdout + run.stderr
    assert run.stderr == ""
    assert "Step 1/" in run.stdout
    lines = run.stdout.splitlines()
    assert any("FailedScheduling" in line and "vision: 8 pods must" in line for line in lines)
    assert any("Preempted" in line and "(priority 1000 > 0)" in line for line in lines)
    assert "8 Jobs completed" in lines[-1]
    assert not [line for line in lines if line.startswith("MISSING")]


def test_the_screen_at_its_fullest_is_written_as_a_picture_that_loads_nothing(logged):
    _, path = logged
    text = " ".join(ElementTree.parse(path).getroot().itertext()).replace("\xa0", " ")
    for part in ("rack-1", "Queues", "ablation", "reclaimed by workload default/peak"):
        assert part in text
    assert "GPUs 67 of 72 allocated" in text
    assert "url(http" not in path.read_text()


def test_on_a_terminal_it_draws_and_gives_the_terminal_back():
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
    with subprocess.Popen(
        [*KAI_PY, "demo", *SPEED], stdout=follower, stderr=follower, env=environment
    ) as running:
        os.close(follower)
        shown = b""
        while piece := _read(leader):
            shown += piece
    os.close(leader)
    assert running.returncode == 0
    text = shown.decode()
    drawn, _, after = text.rpartition("\x1b[?1049l")
    assert "\x1b[?1049h" in drawn
    for part in ("rack-1", "plugin-0", "Queues", "Gangs", "vision", "Preempted"):
        assert part in drawn
    assert "\x1b[38;" not in text, "NO_COLOR"
    assert "\x1b[48;" not in text
    assert "✓ a higher priority preempted it (urgent)" in STYLE.sub("", after)


def _read(leader):
    try:
        return os.read(leader, 65536)
    except OSError:  # the other side was closed
        return b""


async def test_served_it_is_a_cluster_to_work_with():
    running = await asyncio.create_subprocess_exec(
        *KAI_PY, "demo", "--serve", *SPEED,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        told = (await asyncio.wait_for(running.stderr.readline(), patience(60))).decode()
        kubeconfig = told.removeprefix("kubeconfig: ").strip()
        async for line in running.stdout:
            if b"Jobs completed in" in line:
                break
        async with connect(Kubeconfig(kubeconfig)) as client:
            queues = await client.list(QUEUES.at())
            assert {queue.metadata.name for queue in queues.items} == {
                "inference",
                "training",
                "research",
            }
            mine = DemoWorkload("mine", "research", 2, 8, min_available=2)
            await client.create(JOBS.at(), job_manifest(mine), namespace="default")

            async def all_bound():
                pods = await client.list(PODS.at(), label_selector="job-name=mine")
                return len([pod for pod in pods.items if pod.spec.node_name]) == 2

            await eventually(all_bound, what="the pods of a Job of our own on nodes")
        running.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(running.wait(), patience(30)) == 0
        assert await asyncio.to_thread(os.path.exists, kubeconfig) is False
        assert await running.stderr.read() == b""
    finally:
        if running.returncode is None:
            running.kill()


def test_interrupted_it_says_so_with_its_exit_code():
    with subprocess.Popen(
        [*KAI_PY, "demo", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout.readline()
        running.send_signal(signal.SIGINT)
        output, errors = running.communicate(timeout=patience(30))
    assert (running.returncode, errors) == (130, "")
    assert json.loads(output.splitlines()[-1])["missing"]


def test_what_was_not_seen_is_named_and_is_exit_code_1(monkeypatch):
    whole = script_for(8)
    first_step_only = Script(
        nodes=8,
        queues=whole.queues,
        priorities=whole.priorities,
        steps=whole.steps[:1],
        expectations=whole.expectations,
    )
    monkeypatch.setattr(demo, "script_for", lambda nodes: first_step_only)
    monkeypatch.setattr(demo_run, "STEP_TIMEOUT", 0.5)
    result = CliRunner().invoke(main.app, ["demo", *SPEED], obj=main.Invocation())
    assert result.exit_code == 1, result.output
    assert "MISSING  and it started again as a whole when that ended" in result.output


def test_a_cluster_too_small_for_the_story_is_refused():
    run = subprocess.run(
        [*KAI_PY, "demo", "--nodes", "3"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert run.stderr == "kai-py: --nodes: the demo needs 6 to 64 nodes, not 3\n"
