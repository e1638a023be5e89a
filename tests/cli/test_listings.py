"""kai-py queues and kai-py gangs, and how kai-py run reads its options."""

import asyncio
import json

import pytest

from kai_py.api.crd import crds
from kai_py.cli import devices, gangs, queues, reading, top
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.cli.main import main
from kai_py.cli.output import Output
from kai_py.cli.run import PlanPrinter
from kai_py.cli.run import command as run_command
from kai_py.grouping.gang import Owner
from kai_py.observe.cluster_state import queue_rows
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import Plan, Stage, Unplaced
from tests.support.faulty_cluster import Fault, FaultyCluster, Refuse
from tests.support.worlds import world

ALLOCATABLE = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "2"}
JOB = Owner("batch/v1", "Job", "team-a", "train", "u")


def pod(name, gpus, queue, node=""):
    resources = {"limits": {"nvidia.com/gpu": gpus}}
    container = {"name": "main", "image": "i", "resources": resources}
    spec = {"schedulerName": "kai-scheduler", "containers": [container]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"scheduling.kai.io/queue-name": queue}},
        "spec": spec | ({"nodeName": node} if node else {}),
    }


def run_against_cluster(call, capsys, tmp_path, *objects):
    """Run a command in a thread, as its own program would, against a cluster in this loop."""

    async def scene():
        async with FaultyCluster() as cluster:
            cluster.create_all(crds().values())
            ready = [{"type": "Ready", "status": "True"}]
            status = {"allocatable": ALLOCATABLE, "capacity": ALLOCATABLE, "conditions": ready}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}}
            cluster.create(node | {"status": status})
            cluster.create(
                {
                    "apiVersion": "scheduling.kai.io/v1alpha1",
                    "kind": "Queue",
                    "metadata": {"name": "team-a"},
                    "spec": {"deservedGPUs": 1, "maxGPUs": 2},
                }
            )
            for number, gpus in enumerate(("2", "4")):
                cluster.create(pod(f"pod-{number}", gpus, "team-a"))
            for each in objects:
                cluster.create(each)
            path = tmp_path / "kubeconfig"
            cluster.write_kubeconfig(path)
            await asyncio.to_thread(call, str(path))

    asyncio.run(scene())
    return capsys.readouterr().out


@pytest.mark.cluster
def test_queues_shows_shares_and_pending_gangs(capsys, tmp_path):
    out = run_against_cluster(lambda path: queues.command(kubeconfig=path), capsys, tmp_path)
    heading, row = out.splitlines()
    assert heading.split() == [
        "QUEUE", "DESERVED", "MAX", "FAIR", "SHARE", "ALLOCATED", "REQUESTED", "PENDING", "PROBLEM",
    ]  # fmt: skip
    assert row.split() == ["team-a", "1", "2", "2", "2", "6", "1", "QueueMax"]


@pytest.mark.cluster
def test_a_deleted_queue_in_which_gangs_run_is_listed(capsys, tmp_path):
    def listed(path):
        queues.command(kubeconfig=path)
        queues.command(kubeconfig=path, output=Output.WIDE, name="gone")
        queues.command(kubeconfig=path, json=True, name="gone")

    out = run_against_cluster(listed, capsys, tmp_path, pod("runs", "1", "gone", node="node-0"))
    told, problem = out.splitlines(), "queue 'gone' does not exist; 1 gang with 1 pod on nodes is"
    assert told[2].split()[:7] == ["gone", "0", "0", "0", "1", "1", "-"]
    assert told[2].endswith(f"{problem} charged to no queue. Create it to charge it with them")
    assert told[4].split()[:8] == ["gone", "gpu", "0", "0", "0", "1", "1", "-"]
    (row,) = json.loads("".join(told[told.index("[") :]))
    assert (row["queue"], row["allocated"]["gpu"]) == ("gone", 1.0)
    assert row["problems"][0].startswith(problem)


@pytest.mark.cluster
def test_without_queues_it_tells_where_they_come_from(capsys, tmp_path):
    async def scene():
        async with FaultyCluster() as cluster:
            path = tmp_path / "kubeconfig"
            cluster.write_kubeconfig(path)
            await asyncio.to_thread(queues.command, kubeconfig=str(path))

    asyncio.run(scene())
    told = capsys.readouterr()
    assert told.out == ""
    assert "kubectl explain queues.scheduling.kai.io" in told.err
    assert "kai-py crds | kubectl apply -f -" in told.err


@pytest.mark.cluster
def test_queues_explains_how_a_share_comes_about(capsys, tmp_path):
    def explained(path):
        queues.command(kubeconfig=path, explain="team-a")
        with pytest.raises(CommandError, match="missing"):
            queues.command(kubeconfig=path, explain="missing")

    out = run_against_cluster(explained, capsys, tmp_path)
    assert "2 GPUs of the cluster are divided among one queue." in out
    assert "team-a: 1 + 1 = 2." in out


@pytest.mark.cluster
def test_top_prints_the_screen_once_in_a_pipe(capsys, tmp_path):
    out = run_against_cluster(lambda path: top.command(kubeconfig=path), capsys, tmp_path)
    assert "1 node  1 gang pending" in out
    assert "node-0" in out
    assert "1 deserved" in out
    assert "pod-1" in out


@pytest.mark.cluster
def test_gangs_shows_members_and_why_they_wait(capsys, tmp_path):
    out = run_against_cluster(
        lambda path: gangs.command(kubeconfig=path, json=True), capsys, tmp_path
    )
    first, second = json.loads(out)
    assert (first["gang"], first["state"], first["min_members"]) == (
        "default/Pod/pod-0",
        "Starting",
        1,
    )
    assert second["state"] not in ("Starting", "Running")
    assert second["message"]


@pytest.mark.cluster
def test_wide_tables_tell_more(capsys, tmp_path):
    def both(path):
        gangs.command(kubeconfig=path, output=Output.WIDE)
        queues.command(kubeconfig=path, output=Output.WIDE)

    told = run_against_cluster(both, capsys, tmp_path).splitlines()
    assert told[0].split()[-3:] == ["PRIORITY", "NODES", "MESSAGE"]
    at = next(number for number, line in enumerate(told) if line.startswith("QUEUE"))
    assert told[at].split()[:3] == ["QUEUE", "RESOURCE", "DESERVED"]
    assert [line.split()[:3] for line in told[at + 1 :]] == [["team-a", "gpu", "1"]]


def test_an_unlimited_max_is_no_number():
    share = QueueShare(
        "q", {"cpu": 2000.0}, {"cpu": float("inf")}, {"cpu": 0.0}, {"cpu": 500.0}, {"cpu": 0.0}, 1
    )
    waiting = Unplaced("team-a/Job/train", JOB, "q", Stage.RESOURCES, "no capacity.", ())
    (row,) = queue_rows(world({}).snapshot(0.0), Plan(unplaced=(waiting,), queues=(share,)))
    assert row.max == {"cpu": None}
    assert row.deserved == {"cpu": 2.0}
    assert row.allocated == {"cpu": 0.5}
    assert row.pending_by_stage == {"Resources": 1}


def test_a_plan_is_printed_when_it_says_something_new(capsys):
    show = PlanPrinter(json=True)
    waiting = Unplaced("team-a/Job/train", JOB, "q", Stage.RESOURCES, "no capacity.", ())
    for plan in (Plan(), Plan(), Plan(unplaced=(waiting,)), Plan(unplaced=(waiting,))):
        show(plan)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(line["unplaced"]) for line in lines] == [0, 1]


@pytest.mark.parametrize("address", ["nowhere", "host:99999", "host:"])
def test_a_bad_address_is_told(address):
    with pytest.raises(CommandError, match="HOST:PORT"):
        run_command(http=address)


def test_a_kubeconfig_that_is_not_there_is_told(tmp_path):
    with pytest.raises(CommandError, match="no such file"):
        queues.command(kubeconfig=str(tmp_path / "missing"))


def listing_error(kubeconfig):
    with pytest.raises(CommandError) as caught:
        queues.command(kubeconfig=str(kubeconfig))
    assert caught.value.exit_code == ExitCode.CLUSTER
    return str(caught.value)


def test_a_server_that_is_away_is_told_at_once(tmp_path, capsys):
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "current-context": "c",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    assert listing_error(path) == "GET /apis: cannot connect to 127.0.0.1:1: Connection refused"
    assert capsys.readouterr().err == ""


@pytest.mark.cluster
def test_kinds_that_may_not_be_read_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "REFUSAL_SECONDS", 0.2)

    async def scene():
        async with FaultyCluster() as cluster:
            for resource in ("pods", "nodes"):
                refusal = Refuse(code=403, reason="Forbidden", message=f"no {resource} for you")
                cluster.faults.add(Fault(effect=refusal, resource=resource, times=None))
            path = tmp_path / "kubeconfig"
            cluster.write_kubeconfig(path)
            return await asyncio.to_thread(listing_error, path)

    told = asyncio.run(scene())
    assert told.startswith("cannot read Node, Pod: GET /api/v1/nodes: 403 Forbidden")


@pytest.mark.cluster
def test_top_tells_at_once_what_may_not_be_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reading, "REFUSAL_SECONDS", 0.2)

    def ask(path):
        with pytest.raises(SystemExit) as left:
            main(["top", "--once", "--kubeconfig", str(path)])
        assert left.value.code == ExitCode.CLUSTER

    async def scene():
        async with FaultyCluster() as cluster:
            refusal = Refuse(code=403, reason="Forbidden", message="no nodes for you")
            cluster.faults.add(Fault(effect=refusal, resource="nodes", times=None))
            path = tmp_path / "kubeconfig"
            cluster.write_kubeconfig(path)
            await asyncio.to_thread(ask, path)

    asyncio.run(scene())
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("kai-py: cannot read Node: GET /api/v1/nodes: 403 Forbidden")


@pytest.mark.cluster
def test_a_namespace_without_gangs_is_told(capsys, tmp_path):
    def ask(path):
        gangs.command(kubeconfig=path, namespace="defualt")
        said = "no gangs in namespace defualt (did you mean default?)\n"
        assert capsys.readouterr().err == said
        gangs.command(kubeconfig=path, namespace="default")
        assert capsys.readouterr().err == ""

    run_against_cluster(ask, capsys, tmp_path)


@pytest.mark.cluster
def test_an_empty_cluster_is_told(capsys, tmp_path):
    async def scene():
        async with FaultyCluster() as cluster:
            path = tmp_path / "kubeconfig"
            cluster.write_kubeconfig(path)
            for command, told in (
                (gangs.command, "no gangs: no pod has schedulerName kai-scheduler\n"),
                (devices.command, "no devices: no ResourceSlice and no node has any\n"),
            ):
                await asyncio.to_thread(lambda command=command: command(kubeconfig=str(path)))
                assert capsys.readouterr().err == told

    asyncio.run(scene())


@pytest.mark.cluster
def test_filters_that_name_nothing_there_is_are_errors(capsys, tmp_path):
    wrong = [
        (queues.command, {"resource": "gpus"}, r"--resource gpus: not found \(did you mean gpu"),
        (gangs.command, {"queue": "team-b"}, r"--queue team-b: .*did you mean team-a"),
        (devices.command, {"node": "elsewhere"}, r"--node elsewhere: .*kubectl get nodes"),
        (devices.command, {"queue": "team-b"}, r"--queue team-b: .*did you mean team-a"),
    ]

    def ask(path):
        for command, options, told in wrong:
            with pytest.raises(CommandError, match=told):
                command(kubeconfig=path, **options)
        queues.command(kubeconfig=path, resource="cpu")
        gangs.command(kubeconfig=path, queue="team-a")

    assert "team-a" in run_against_cluster(ask, capsys, tmp_path)
