"""What ``kai-py explain`` tells of a saved cluster."""

import asyncio
import contextlib
import copy
import io
import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from kai_py.api.choices import Subject
from kai_py.cli import explain as explain_module
from kai_py.cli import main
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.observe.decision_log import DecisionLog
from kai_py.observe.http import Probes, serve
from kai_py.observe.http_access import HttpAccess
from kai_py.observe.http_api import ApiSource
from kai_py.observe.kept_history import ShareHistory
from kai_py.observe.subject import gang_keys
from kai_py.observe.suggestion import Suggestion, SuggestionSearch
from kai_py.plan.plan import Plan
from kai_py.simulate.files.objects import load_objects, write_objects
from tests.observe.shown import view_of
from tests.simulate import manifests
from tests.simulate.clusters import job, queue, simulated
from tests.simulate.test_situations import staged
from tests.support.mixtures import MIXTURES
from tests.support.scenario import claim, claiming, device_class, gpu_slice, node, pod
from tests.support.scenario import cluster as scenario
from tests.support.scenario import queue as team
from tests.support.worlds import gang, world


@pytest.fixture(scope="module")
def cluster():
    cluster = simulated(queue("team", 0, 4), job("one", 4, "team"), nodes=3)
    cluster.settle(60)
    cluster.embedded.create_all([job("two", 4, "team"), job("three", 1, "team")])
    cluster.settle(60)
    return cluster


@pytest.fixture(scope="module")
def saved(cluster, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "cluster.json"
    write_objects(path, cluster.documents())
    return str(path)


def explain(*arguments):
    result = CliRunner().invoke(main.app, ["explain", *arguments], obj=main.Invocation())
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.mark.slow
def test_a_pending_gang_is_explained_with_its_position_and_what_helps(saved):
    result = explain("job", "two", "--from", saved)
    assert result.exit_code == 1
    assert (
        "default/Job/two is pending (QueueMax): 0 of 4 pods run, minMember is 4." in result.output
    )
    assert "of 2 pending in queue team" in result.output
    assert "set maxGPUs of Queue team to 9\n" in result.output
    patch = (
        """kubectl patch queue.scheduling.kai.io team --type merge -p '{"spec":{"maxGPUs":9}}'"""
    )
    assert patch in result.output


def test_a_running_gang_is_explained_with_its_nodes(saved):
    result = explain("gang", "default/Job/one", "--from", saved, "--no-suggestions")
    assert result.exit_code == 0
    assert "It runs on node-" in result.output


def test_pods_and_claims_lead_to_their_gang(saved, cluster):
    member = cluster.snapshot().gangs["default/Job/two"].members[0]
    for subject, name in (("pod", member.pod), ("claim", member.claims[0])):
        result = explain(subject, str(name), "--from", saved, "--no-suggestions", "--json")
        [answer] = json.loads(result.output)
        assert answer["gang"] == "default/Job/two"
        assert answer["suggestions"] == []


@pytest.fixture
def deployed():
    made = simulated(queue("team", 0, 8))
    template = job("server", 1, "team")["spec"]["template"] | {"metadata": {"labels": {"a": "b"}}}
    template["spec"]["restartPolicy"] = "Always"
    server = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": job("server", 1, "team")["metadata"],
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    made.embedded.create_all([server])
    made.settle(60)
    return made.documents()


def test_a_workload_leads_to_the_gangs_of_its_pods(deployed, tmp_path):
    path = tmp_path / "cluster.json"
    write_objects(path, deployed)
    [replicas] = [each["metadata"]["name"] for each in deployed if each["kind"] == "ReplicaSet"]
    pods = {each["metadata"]["name"] for each in deployed if each["kind"] == "Pod"}
    for subject in ("deploy/server", f"replicaset.apps/{replicas}"):
        result = explain(subject, "--from", str(path), "--json")
        assert result.exit_code == 0
        gangs = {each["gang"] for each in json.loads(result.output)}
        assert gangs == {f"default/Pod/{name}" for name in pods}
    with pytest.raises(CommandError, match=r"deployment default/servr: not found \(did you mean"):
        explain("deploy/servr", "--from", str(path))


def test_a_workload_without_pods_says_so(deployed, tmp_path):
    path = tmp_path / "cluster.json"
    write_objects(path, [each for each in deployed if each["kind"] != "Pod"])
    result = explain("deployment", "server", "--from", str(path))
    assert result.exit_code == 1
    assert "default/Deployment/server is pending (NoPods)" in result.output
    assert "kubectl describe deployment server" in result.output


def ended(pod):
    pod["status"]["phase"] = "Succeeded"


def elsewhere(pod):
    pod["spec"]["schedulerName"] = "default-scheduler"


def in_pool_b(pod):
    pod["metadata"].setdefault("labels", {})["kai.scheduler/node-pool"] = "b"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (ended, r"has ended \(Succeeded\)"),
        (elsewhere, r"names another scheduler \(schedulerName default-scheduler\)"),
        (in_pool_b, r"belongs to node pool b \(label kai.scheduler/node-pool\), which has a sche"),
    ],
)
def test_what_is_in_no_gang_says_why(cluster, tmp_path, change, reason):
    path, documents = tmp_path / "cluster.json", copy.deepcopy(cluster.documents())
    pods = [each for each in documents if each["kind"] == "Pod"]
    for each in pods:
        change(each)
    write_objects(path, documents)
    one = next(each["metadata"] for each in pods if each["metadata"]["name"].startswith("one-"))
    for subject, whose in (
        (f"pod/{one['name']}", "it"),
        ("job/one", "its pod"),
        ("gang/one", "its pod"),
        (f"claim/{claim_of(documents, one['uid'])['metadata']['name']}", "its pod"),
    ):
        with pytest.raises(CommandError, match=f"any gang of this scheduler: {whose} {reason}"):
            explain(subject, "--from", str(path))


def claim_of(documents, uid):
    """The claim that was made for a pod."""
    return next(
        each
        for each in documents
        if each["kind"] == "ResourceClaim" and each["metadata"]["ownerReferences"][0]["uid"] == uid
    )


def test_a_claim_that_is_being_deleted_leads_to_the_gang_that_waits_for_it(cluster, tmp_path):
    path, documents = tmp_path / "cluster.json", copy.deepcopy(cluster.documents())
    pods = {each["metadata"]["uid"]: each for each in documents if each["kind"] == "Pod"}
    uid = next(uid for uid, each in pods.items() if each["metadata"]["name"].startswith("two-"))
    deleted = claim_of(documents, uid)
    deleted["metadata"] |= {"deletionTimestamp": "2027-01-15T08:00:00Z", "finalizers": ["test/a"]}
    write_objects(path, documents)
    subject, message = f"claim/{deleted['metadata']['name']}", "it is being deleted"
    output = explain(subject, "--from", str(path), "--no-suggestions").output
    assert "default/Job/two is pending (ClaimsNotReady)" in output
    assert f"Claim default/{deleted['metadata']['name']}: {message}, so no device" in output
    documents.remove(pods[uid])
    write_objects(path, documents)
    with pytest.raises(CommandError, match=rf"{message} and kept by its finalizers \(test/a\)"):
        explain(subject, "--from", str(path))
    del deleted["metadata"]["deletionTimestamp"]
    write_objects(path, documents)
    with pytest.raises(CommandError, match="any gang of this scheduler: no pod uses it"):
        explain(subject, "--from", str(path))


def test_a_job_below_another_framework_leads_to_its_gang():
    whole = gang("whole", pods=1, node="n1")
    [only] = whole.members
    below = replace(only, workloads=(("Job", "part"), ("JobSet", "whole")))
    snapshot = world({"n1": 4}, replace(whole, members=(below,))).snapshot(0.0)
    for subject, name in ((Subject.JOB, "part"), (Subject.WORKLOAD, "default/jobset/whole")):
        assert list(gang_keys(snapshot, Plan(), subject, name)) == [whole.key]


def test_a_claim_is_told_what_becomes_of_the_devices(saved, cluster):
    waiting = cluster.snapshot().gangs["default/Job/two"].members[0].claims[0]
    result = explain("claim", str(waiting), "--from", saved, "--no-suggestions")
    assert f"Devices for claim {waiting}: " in result.output
    assert "request gpu: 1 of class gpu.nvidia.com" in result.output
    running = cluster.snapshot().gangs["default/Job/one"].members[0].claims[0]
    result = explain("claim", str(running), "--from", saved, "--no-suggestions")
    assert f"Claim {running} is allocated gpu.nvidia.com/node-" in result.output


def test_what_else_a_queue_rations_is_told(tmp_path):
    [waits] = [each for each in MIXTURES if each.name == "cpu-max"]
    path = tmp_path / "cluster.json"
    write_objects(path, staged(waits).documents())
    asked = ("job", "waiting", "--from", str(path), "--no-suggestions")
    rows = [line.split() for line in explain(*asked).output.splitlines() if "team " in line]
    assert rows[-2] == ["team", "-", "2.5", "2.5", "0", "6", "CPU", "cores"]
    assert rows[-1][-2:] == ["GB", "memory"]
    [answer] = json.loads(explain(*asked, "-o", "json").output)
    assert [level["unit"] for level in answer["limited_resources"]] == ["CPU cores", "GB memory"]


def test_a_job_that_was_never_applied_is_explained_with_the_pods_to_come(tmp_path):
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    path = tmp_path / "list.json"
    nine = manifests.job("nine", 9)
    nine["metadata"]["namespace"] = "default"
    documents = [manifests.node("n0", **ready), manifests.QUEUE, nine]
    path.write_text(json.dumps({"kind": "List", "items": documents}), encoding="utf-8")
    printed = explain("job", "nine", "--from", str(path), "--no-suggestions").output
    assert "default/Job/nine is pending (Resources)" in printed
    assert "9 pods must start together" in printed


@pytest.mark.slow
def test_pods_that_were_never_applied_are_explained_too(tmp_path, caplog):
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    tainted = manifests.node("n0", **ready)
    tainted["spec"] = {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}
    path, documents = tmp_path / "list.json", [tainted, manifests.QUEUE, manifests.pod("a", gpus=0)]
    path.write_text(json.dumps({"kind": "List", "items": documents}), encoding="utf-8")
    assert "tolerate" in explain("pod", "default/a", "--from", str(path)).output
    assert not caplog.records


@pytest.mark.parametrize(
    ("subject", "first", "lists"),
    [
        ("gang", "default/Job/one", "kai-py gangs lists"),
        ("job", "default/one", "kai-py gangs lists"),
        ("pod", "default/one-", "kubectl get pods -n default lists"),
        ("claim", "default/one-", "kubectl get resourceclaims -n default lists"),
        ("queue", "team", "kai-py queues lists"),
    ],
)
def test_what_is_not_there_is_one_line(saved, monkeypatch, subject, first, lists):
    name = "missing" if subject == "queue" else "default/missing"
    message = f"{subject} {name}: not found [(]"
    with pytest.raises(CommandError, match=f"{message}{saved} has {first}"):
        explain(subject, name, "--from", saved)
    objects = load_objects(Path(saved))
    monkeypatch.setattr(explain_module, "cluster_objects", lambda *_: objects)
    monkeypatch.setattr(explain_module, "context_namespace", lambda *_: "default")
    monkeypatch.setattr(explain_module, "_events", lambda *_: ())
    with pytest.raises(CommandError, match=f"{message}{lists}"):
        explain(subject, name)


@pytest.mark.parametrize("subject", [("queue", "team"), ("job", "two")])
@pytest.mark.parametrize("option", ["--deadline", "--since"])
def test_a_period_that_cannot_be_read_is_refused_for_any_subject(saved, subject, option):
    with pytest.raises(CommandError, match=f"{option}: 'soon' is not a duration"):
        explain(*subject, "--from", saved, option, "soon")


@pytest.mark.parametrize(
    ("subject", "name", "meant"),
    [("job", "twoo", "two"), ("gang", "Job/twoo", "Job/two"), ("job", "ohter/two", "default/two")],
)
def test_a_name_that_is_not_there_gets_its_nearest(saved, subject, name, meant):
    with pytest.raises(CommandError, match=f"did you mean .*{meant}"):
        explain(subject, name, "--from", saved)


async def test_a_running_scheduler_also_tells_what_it_decided(capsys):
    train = gang("train", pods=2, gpus=8)
    before, after = (
        world({"n1": gpus}, train).snapshot(now) for gpus, now in ((4, 0.0), (16, 60.0))
    )
    log = DecisionLog()
    for snapshot in (before, after):
        log.record(view_of(snapshot).plan, snapshot.gangs, snapshot.now)
    source = ApiSource(lambda: view_of(after), log, ShareHistory())
    probes = Probes(CollectorRegistry(), list, list, source)
    async with serve(probes, HttpAccess("127.0.0.1"), 0) as port:
        asked = ["gang", train.key, "--url", f"http://127.0.0.1:{port}"]
        told = await asyncio.to_thread(explain, *asked)
        assert told.exit_code == 0
        assert "  pending (Resources): Infeasible: " in told.output
        assert (
            "  placed by allocate, 2 pods on n1: it fits into idle capacity; queue team then"
            in told.output
        )
        told = await asyncio.to_thread(explain, *asked, "--since", "30s")
        assert "pending (Resources" not in told.output
        with pytest.raises(CommandError, match="404: gang default/missing: not part of"):
            await asyncio.to_thread(explain, "gang", "missing", *asked[2:])
        with pytest.raises(CommandError, match="did you mean default/Gang/train") as error:
            await asyncio.to_thread(explain, "gang/Gang/trian", *asked[2:])
        assert error.value.exit_code is ExitCode.USAGE


@pytest.mark.slow
async def test_the_reason_is_printed_though_no_suggestion_comes_in_time():
    async def hang(_gang, _on_found):
        await asyncio.sleep(60)

    train = gang("train", pods=2, gpus=8)
    view = view_of(world({"n1": 4}, train).snapshot(0.0))
    source = ApiSource(lambda: view, DecisionLog(), ShareHistory(), suggest=hang)
    probes = Probes(CollectorRegistry(), list, list, source)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explain_module, "READ_SECONDS", 0.5)
        async with serve(probes, HttpAccess("127.0.0.1"), 0) as port:
            asked = ["gang", train.key, "--url", f"http://127.0.0.1:{port}"]
            told = await asyncio.to_thread(explain, *asked)
            short = await asyncio.to_thread(explain, *asked, "-o", "json")
    assert told.exit_code == short.exit_code == ExitCode.FOUND
    assert "is pending (Resources)" in told.output
    assert "no more suggestions: " in told.stderr
    assert json.loads(short.stdout)[0]["state"] == "Resources"


async def test_the_scheduler_is_read_as_it_searches():
    """The second suggestion is not found before the first is printed."""
    printed = asyncio.Event()

    async def search(_gang, on_found):
        on_found(Suggestion("the first", ()))
        await asyncio.wait_for(printed.wait(), 30)
        on_found(Suggestion("the second", ()))
        return SuggestionSearch((Suggestion("the first", ()), Suggestion("the second", ())))

    class Screen(io.StringIO):
        def write(self, text):
            if "the first" in text:
                loop.call_soon_threadsafe(printed.set)
            return super().write(text)

    loop, screen = asyncio.get_running_loop(), Screen()
    train = gang("train", pods=2, gpus=8)
    view = view_of(world({"n1": 4}, train).snapshot(0.0))
    source = ApiSource(lambda: view, DecisionLog(), ShareHistory(), suggest=search)
    probes = Probes(CollectorRegistry(), list, list, source)
    async with serve(probes, HttpAccess("127.0.0.1"), 0) as port:
        asked = ["explain", "gang", train.key, "--url", f"http://127.0.0.1:{port}"]
        with contextlib.redirect_stdout(screen), pytest.raises(SystemExit):
            await asyncio.to_thread(main.app, asked, obj=main.Invocation())
    told = screen.getvalue()
    assert told.index("is pending") < told.index("the first") < told.index("the second")


async def test_a_running_scheduler_tells_what_becomes_of_the_devices_of_a_claim():
    slow = 'device.attributes["gpu.nvidia.com"].productName == "A100"'
    wanted = claiming(pod("p", 0, queue="team"), "p-gpu")
    world = scenario(device_class(), node("n0", 0), gpu_slice("n0", 4), team("team", 4), wanted)
    snapshot = world.add(claim("p-gpu", owner="p", selector=slow)).snapshot()
    source = ApiSource(lambda: view_of(snapshot), DecisionLog(), ShareHistory())
    probes = Probes(CollectorRegistry(), list, list, source)
    async with serve(probes, HttpAccess("127.0.0.1"), 0) as port:
        url = f"http://127.0.0.1:{port}"
        told = await asyncio.to_thread(explain, "claim", "default/p-gpu", "--url", url)
    assert "Devices for claim default/p-gpu: 4 on 1 node" in told.output
    assert f"selector #0 ({slow})" in told.output
