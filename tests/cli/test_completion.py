"""Names that shells are offered, from an API server and from a scheduler."""

import asyncio

import pytest

from kai_py.api.crd import crds
from kai_py.cli import completion
from kai_py.cli.main import main
from kai_py.embedded.cluster import EmbeddedCluster
from kai_py.embedded.nodes import h100_node
from kai_py.observe.http import serve
from kai_py.observe.http_access import HttpAccess
from tests.observe.shown import Shown
from tests.observe.tenants import tenants
from tests.support.cluster.manifests import QUEUE_KEY, job, pod_spec, queue
from tests.support.patience import patience

pytestmark = pytest.mark.cluster
SHELLS = {
    "bash": lambda words: {
        "_KAI_PY_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    },
    "zsh": lambda words: {
        "_KAI_PY_COMPLETE": "complete_zsh",
        "_TYPER_COMPLETE_ARGS": " ".join(words),
    },
    "fish": lambda words: {
        "_KAI_PY_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_ARGS": " ".join(words),
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    },
}


@pytest.fixture
def complete(monkeypatch, capsys):
    """What a shell is offered for the words, of which the last is not finished."""

    def run(*words, shell="bash"):
        for name, value in SHELLS[shell](["kai-py", *words]).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit):
            main([])
        return capsys.readouterr().out

    return run


@pytest.fixture
async def kubeconfig(tmp_path, monkeypatch):
    async with EmbeddedCluster() as cluster:
        cluster.create_all(crds().values())
        for name in ("gpu-a", "gpu-b", "cpu-a"):
            cluster.create(h100_node(name, gpus=4))
        cluster.create(queue("team-a"))
        cluster.create(queue("team-b"))
        cluster.create(job("train", 2, pod_spec(gpus=1), annotations={QUEUE_KEY: "team-a"}))
        path = tmp_path / "kubeconfig"
        cluster.write_kubeconfig(path)
        monkeypatch.setenv("KUBECONFIG", str(path))
        monkeypatch.setattr(completion, "SECONDS", patience(60.0))
        yield path


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["gangs", "--queue", "te"], ["team-a", "team-b"]),
        (["devices", "--node", "gpu"], ["gpu-a", "gpu-b"]),
        (["gangs", "default/J"], ["default/Job/train"]),
        (["queues", "--explain", "team-b"], ["team-b"]),
        (["explain", "jo"], ["job", "jobflow", "jobset"]),
        (["explain", "job", "tr"], ["train"]),
        (["explain", "job/tr"], ["job/train"]),
        (["explain", "queue", "team-a"], ["team-a"]),
        (["what-if", "--drain", "cpu"], ["cpu-a"]),
        (["what-if", "--add-nodes", "cpu"], ["cpu-a="]),
        (["what-if", "--set", "team-a"], ["team-a.maxGPUs="]),
        (["gangs", "-n", "kube-s"], ["kube-system"]),
    ],
)
async def test_names_of_the_cluster_are_offered(kubeconfig, complete, shell, words, offered):
    told = await asyncio.to_thread(complete, *words, shell=shell)
    for name in offered:
        assert name.replace("$", "\\$") in told
    if shell == "bash":
        assert told.split() == offered


async def test_gangs_are_those_of_the_scheduler(kubeconfig, complete):
    shown = Shown(tenants().snapshot())
    async with serve(shown.probes(), HttpAccess("127.0.0.1"), 0) as port:
        words = ("gangs", "--url", f"http://127.0.0.1:{port}", "ml/")
        told = await asyncio.to_thread(complete, *words)
    assert told.split() == ["ml/Pod/more", "ml/Pod/train"]


def test_a_cluster_that_does_not_answer_offers_nothing(complete, monkeypatch, tmp_path, capsys):
    path = tmp_path / "none"
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert complete("gangs", "--queue", "") == "\n"
    assert capsys.readouterr().err == ""


def test_it_takes_a_moment_at_most(complete, monkeypatch):
    async def hang(*_):
        await asyncio.sleep(3600)

    monkeypatch.setattr(completion, "SECONDS", 0.1)
    monkeypatch.setattr(completion, "_listed", hang)
    assert complete("gangs", "--queue", "") == "\n"
