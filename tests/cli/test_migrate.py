"""kai-py migrate: what KAI's objects become, from files and from a cluster."""

import asyncio
import json

import pytest
import typer

from kai_py.api.choices import Profile
from kai_py.cli.errors import CommandError
from kai_py.cli.migrate import command, gang_outcomes, print_outcomes
from kai_py.config import read_configuration
from kai_py.dialects.kai.migration import migration_notes
from kai_py.embedded.cluster import EmbeddedCluster
from tests.support.cluster.kai_definitions import KINDS, definition
from tests.support.scenario import cluster, job_with_pods, node, pod, queue

YEAR_SECONDS = 365 * 86_400
SHARDS = ("kai.scheduler", "v1", "SchedulingShard", "schedulingshards", "Cluster")
OBJECTS = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  parentQueue: gone
  reclaimMinRuntime: soon
  resources:
    gpu: {quota: 4, limit: -1, overQuotaWeight: 1}
    cpu: {quota: -1, limit: -1}
    memory: {quota: -1}
---
apiVersion: scheduling.kai.io/v1alpha1
kind: Queue
metadata: {name: team}
spec: {deservedGPUs: 4}
---
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: serve, namespace: prod}
spec:
  minSubGroup: 3
  minNonPreemptible: 2
  subGroups: [{name: a, minMember: 1}, {name: b, minMember: 1, weight: 2}]
---
apiVersion: kai.scheduler/v1alpha1
kind: Topology
metadata: {name: dc}
spec: {levels: [{nodeLabel: rack}]}
---
apiVersion: kai.scheduler/v1
kind: SchedulingShard
metadata: {name: default}
spec:
  placementStrategy: {gpu: spread}
  kValue: 0.5
  queueDepthPerAction: {reclaim: 5}
---
apiVersion: scheduling.run.ai/v1alpha2
kind: BindRequest
metadata: {name: p, namespace: prod}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {kai.scheduler/queue: team}}
spec: {template: {metadata: {annotations: {kai.scheduler/numa-placement-predicted: "0"}}}}
"""


def notes(capsys, *files, code=None):
    if code is None:
        command(list(files), json=True)
    else:
        with pytest.raises(typer.Exit) as left:
            command(list(files), json=True)
        assert left.value.exit_code == code
    found = json.loads(capsys.readouterr().out)
    return {
        (note["subject"], note["field"]): (note["compatibility"], note["text"]) for note in found
    }


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "objects.yaml"
    path.write_text(OBJECTS)
    return str(path)


def test_every_object_has_its_verdict(written, capsys):
    found = notes(capsys, written, code=1)
    assert {key: verdict for key, (verdict, _) in found.items()} == {
        ("Queue/team", ""): "works",
        ("Queue/team", "spec.resources.memory.limit"): "works",
        ("Queue/team", "spec"): "differs",
        ("Queue/team", "spec.parentQueue"): "differs",
        ("Queue/team", "metadata.name"): "differs",
        ("PodGroup/prod/serve", ""): "works",
        ("PodGroup/prod/serve", "spec.minNonPreemptible"): "missing",
        ("PodGroup/prod/serve", "spec.subGroups[1].weight"): "missing",
        ("PodGroup/prod/serve", "spec.subGroups"): "differs",
        ("PodGroup/prod/serve", "spec.minSubGroup"): "differs",
        ("Topology/dc", ""): "works",
        ("SchedulingShard/default", ""): "missing",
        ("SchedulingShard/default", "spec.placementStrategy"): "differs",
        ("SchedulingShard/default", "spec.kValue"): "differs",
        ("SchedulingShard/default", "spec.queueDepthPerAction"): "missing",
        ("BindRequest/prod/p", ""): "missing",
        (
            "Deployment/web",
            "spec.template.metadata.annotations[kai.scheduler/numa-placement-predicted]",
        ): "missing",
    }
    assert "only 2 subgroups below" in found["PodGroup/prod/serve", "spec.subGroups"][1]
    assert "'soon' is not a duration" in found["Queue/team", "spec"][1]


FEATURES = {
    "gpu-fraction": "works",
    "gpu-fraction-container-name": "works",
    "kai.scheduler/segment-size": "works",
    "kai.scheduler/ignore-workload-api": "works",
    "kai.scheduler/skip-podgrouper": "differs",
    "mps": "differs",
    "nvidia.com/mig-1g.5gb": "missing",
    "kai.scheduler/unheard-of": "missing",
    "example.com/theirs": None,
    "kai.scheduler/queue": None,
}


@pytest.mark.parametrize(
    ("kind", "spec", "path"),
    [
        ("Pod", None, ""),
        ("Job", ("template",), "spec.template."),
        ("CronJob", ("jobTemplate", "spec", "template"), "spec.jobTemplate.spec.template."),
        ("PyTorchJob", ("replicas", 0, "template"), "spec.replicas[0].template."),
    ],
)
def test_every_feature_of_a_pod_has_its_verdict(tmp_path, capsys, kind, spec, path):
    metadata = {"annotations": dict.fromkeys(FEATURES, "1")}
    inside = {"metadata": metadata, "spec": {"containers": []}}
    for key in reversed(spec or ()):
        inside = [inside] if key == 0 else {key: inside}
    document = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "p"}}
    document = document | ({"spec": inside} if spec else {"metadata": {"name": "p", **metadata}})
    file = tmp_path / "object.yaml"
    file.write_text(json.dumps(document))
    found = notes(capsys, str(file), code=1)
    expected = {
        (f"{kind}/p", f"{path}metadata.annotations[{key}]"): verdict
        for key, verdict in FEATURES.items()
        if verdict
    }
    assert {key: verdict for key, (verdict, _) in found.items()} == expected


def test_what_works_ends_with_success_and_a_table(tmp_path, capsys):
    path = tmp_path / "fine.yaml"
    path.write_text(
        "apiVersion: v1\nkind: List\nitems:\n- "
        + OBJECTS.split("---")[3].strip().replace("\n", "\n  ")
    )
    command([str(path)])
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["VERDICT", "OBJECT", "FIELD", "WHAT"]
    assert out[1].split()[:3] == ["works", "Topology/dc", "-"]
    assert out[-1] == "1 works, 0 differs, 0 missing"


def test_objects_of_all_lists_are_read(tmp_path, capsys):
    inside = {"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology"}
    listed = inside | {"kind": "TopologyList", "items": [{"metadata": {"name": "a"}}]}
    nested = {"apiVersion": "v1", "kind": "List", "items": [listed]}
    file = tmp_path / "lists.json"
    file.write_text(json.dumps([nested, inside | {"metadata": {"generateName": "b-"}}]))
    first, second = sorted(subject for subject, _ in notes(capsys, str(file)))
    assert (first, second[:-5]) == ("Topology/a", "Topology/b-")


def test_a_version_that_is_not_read_is_named(tmp_path, capsys):
    file = tmp_path / "old.yaml"
    old = OBJECTS.split("---", maxsplit=1)[0]
    file.write_text(old.replace("scheduling.run.ai/v2", "scheduling.run.ai/v1"))
    text = "is not read: write scheduling.run.ai/v2"
    assert notes(capsys, str(file), code=1) == {("Queue/team", "apiVersion"): ("missing", text)}


@pytest.mark.cluster
def test_a_cluster_is_read_where_no_file_is_named(tmp_path, capsys):
    path = tmp_path / "kubeconfig"
    topology = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "dc"},
        "spec": {"levels": [{"nodeLabel": "rack"}]},
    }

    shard = topology | {"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "spec": {}}

    async def scene():
        async with EmbeddedCluster() as cluster:
            cluster.create_all(definition(*kind) for kind in (*KINDS, SHARDS))
            cluster.create(topology)
            cluster.create(shard)
            cluster.write_kubeconfig(path)
            with pytest.raises(typer.Exit):
                await asyncio.to_thread(command, kubeconfig=str(path), json=True)

    asyncio.run(scene())
    found = json.loads(capsys.readouterr().out)
    assert [(note["subject"], note["compatibility"]) for note in found] == [
        ("Topology/dc", "works"),
        ("SchedulingShard/dc", "missing"),
    ]


SETTINGS = """
apiVersion: kai.scheduler/v1
kind: SchedulingShard
metadata: {name: default}
spec:
  placementStrategy: {gpu: spread, cpu: binpack}
  kValue: 0.5
  minRuntime: {preemptMinRuntime: 5m, reclaimResolveMethod: queue}
  args: {default-staleness-grace-period: 2m, max-consolidation-preemptees: "4", other: "1"}
  actions: {consolidation: {enabled: false}}
  usageDBConfig:
    clientType: prometheus
    connectionString: http://prometheus:9090
    usageParams: {windowType: tumbling, windowSize: 24h, halfLifePeriod: 12h}
---
apiVersion: kai.scheduler/v1
kind: SchedulingShard
metadata: {name: pool-a}
spec: {partitionLabelValue: a, usageDBConfig: {usageParams: {windowSize: 24h}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: defaults, namespace: kai-scheduler}
data:
  types: >-
    [{"typeName": "Deployment", "group": "apps", "priorityName": "build",
    "preemptibility": "Preemptible"}, {"typeName": "Notebook"}, {"group": "x"}, 7]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: theirs, namespace: kai-scheduler}
data: {types: "not json"}
"""


def test_settings_of_kai_become_configurations(tmp_path, capsys):
    file = tmp_path / "settings.yaml"
    file.write_text(SETTINGS)
    with pytest.raises(typer.Exit):
        command([str(file)], write_config=tmp_path / "out", json=True)
    found = json.loads(capsys.readouterr().out)
    assert ("ConfigMap/kai-scheduler/defaults", "differs") in [
        (note["subject"], note["compatibility"]) for note in found
    ]
    lost = {each["field"] for each in found if each["text"] == "has no counterpart"}
    assert lost == {"spec.args.other"}
    default = read_configuration(tmp_path / "out" / "default.yaml")
    assert default.rules is Profile.KAI
    assert (default.placement.gpu, default.placement.cpu) == ("spread", "binpack")
    assert default.eviction.preempt_min_runtime == 300
    assert default.eviction.reclaim_resolve_method == "queue"
    assert default.eviction.staleness_grace == 120
    assert default.eviction.consolidate_at_most == 4
    assert not default.eviction.consolidate
    assert default.fair_share.usage_weight == 0.5
    assert default.fair_share.half_life == 12 * 3600
    assert default.fair_share.prometheus.url == "http://prometheus:9090"
    assert default.fair_share.prometheus.window.type == "tumbling"
    assert [each.kind for each in default.kai.kind_defaults] == ["Deployment", "Notebook"]
    assert default.kai.kind_defaults[0].preemptibility == "preemptible"
    pool = read_configuration(tmp_path / "out" / "pool-a.yaml")
    assert pool.node_pool.name == "a"
    assert pool.fair_share.prometheus is None


@pytest.mark.parametrize("types", ["not json", "[" * 50_000, '{"a":' * 50_000, "7"])
def test_config_maps_of_others_are_no_settings(types):
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}}
    assert not list(migration_notes([{**document, "data": {"types": types}}]))


def test_a_value_that_is_not_one_is_named(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text(SETTINGS.replace("gpu: spread", "gpu: anywhere"))
    with pytest.raises(CommandError, match=r"SchedulingShard default has an invalid value.*gpu"):
        command([str(file)], write_config=tmp_path / "out")


def test_a_gang_that_is_never_stale_in_kai_is_not_stale_here(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text(SETTINGS.replace("grace-period: 2m", "grace-period: -1s"))
    with pytest.raises(typer.Exit):
        command([str(file)], write_config=tmp_path / "out")
    written = read_configuration(tmp_path / "out" / "default.yaml")
    assert written.eviction.staleness_grace > 100 * YEAR_SECONDS


def test_a_shard_names_no_file_elsewhere(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text(SETTINGS.replace("name: pool-a", "name: ../pool-a"))
    with pytest.raises(CommandError, match=r"SchedulingShard \.\./pool-a: is not a name"):
        command([str(file)], write_config=tmp_path / "out")


def test_the_switch_is_planned_before_it_is_made(capsys):
    runs = pod("runs", 2, queue="a", node="n", created=5.0)
    made = cluster(
        node("n", 4),
        queue("a", 0),
        queue("b", 3),
        runs,
        pod("also", 1, queue="a", node="n"),
        pod("claims", 3, queue="b"),
        *job_with_pods("never", 9, queue="b"),
        pod("starts", 1, queue="a"),
    )
    outcomes = {each.gang: each for each in gang_outcomes(made.snapshot(0.0), made.plan())}
    assert {key: each.outcome.value for key, each in outcomes.items()} == {
        "default/Pod/runs": "evicted",
        "default/Pod/also": "runs",
        "default/Pod/claims": "starts",
        "default/Job/never": "waits",
        "default/Pod/starts": "waits",
    }
    assert outcomes["default/Pod/claims"].why == "once its victims have ended"
    assert "reclaimed by workload default/claims" in outcomes["default/Pod/runs"].why
    assert outcomes["default/Job/never"].why
    print_outcomes(tuple(outcomes.values()))
    printed = capsys.readouterr().out
    assert "OUTCOME" in printed
    assert "default/Pod/also" not in printed
    assert "runs: 1, starts: 1, waits: 2, evicted: 1" in printed


def test_a_plan_needs_a_cluster(written):
    with pytest.raises(CommandError, match="--plan"):
        command([written], plan=True)


@pytest.mark.cluster
def test_the_switch_is_planned_by_kais_rules_on_a_cluster(tmp_path, capsys):
    path = tmp_path / "kubeconfig"
    share = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    team = {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "default-queue"},
        "spec": {"resources": dict.fromkeys(("cpu", "gpu", "memory"), share)},
    }
    waiting = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "c", "image": "i"}],
        },
    }

    async def scene():
        async with EmbeddedCluster() as cluster:
            cluster.create_all(definition(*kind) for kind in KINDS)
            cluster.create(team)
            cluster.create(waiting)
            cluster.write_kubeconfig(path)
            await asyncio.to_thread(command, kubeconfig=str(path), plan=True, json=True)

    asyncio.run(scene())
    [found] = json.loads(capsys.readouterr().out)
    # It names no queue: by KAI's rules it goes to the default one. There is no node.
    assert (found["gang"], found["queue"], found["outcome"]) == (
        "default/Pod/p",
        "default-queue",
        "waits",
    )


GLOBAL = """
apiVersion: kai.scheduler/v1
kind: Config
metadata: {name: kai-config}
spec:
  global:
    schedulerName: gpus
    queueLabelKey: example.com/queue
    nodePoolLabelKey: example.com/pool
    podLabelSelector: {team: vision}
---
apiVersion: kai.scheduler/v1
kind: SchedulingShard
metadata: {name: a}
spec: {partitionLabelValue: a}
---
apiVersion: v1
kind: Config
metadata: {name: other}
spec: {global: {schedulerName: wrong}}
"""


def test_a_shard_without_a_label_value_needs_no_node_pool(tmp_path, capsys):
    file = tmp_path / "shards.yaml"
    shard = "apiVersion: kai.scheduler/v1\nkind: SchedulingShard\nmetadata: {name: NAME}\nspec: "
    specs = ('{partitionLabelValue: ""}', "{partitionLabelValue: a}", "[5]")
    file.write_text("---\n".join(f"{shard}{spec}\n" for spec in specs))
    with pytest.raises(typer.Exit):
        command([str(file)], json=True)
    fields = [note["field"] for note in json.loads(capsys.readouterr().out)]
    assert fields == ["", "", "spec.partitionLabelValue", ""]


def test_names_in_kais_config_are_taken_into_every_configuration(tmp_path, capsys):
    file = tmp_path / "config.yaml"
    file.write_text(GLOBAL)
    with pytest.raises(typer.Exit):
        command([str(file)], write_config=tmp_path / "out", json=True)
    found = json.loads(capsys.readouterr().out)
    fields = [note["field"] for note in found if note["subject"] == "Config/kai-config"]
    assert fields == [
        "",
        "spec.global.schedulerName",
        "spec.global.queueLabelKey",
        "spec.global.nodePoolLabelKey",
        "spec.global.podLabelSelector",
    ]
    (written,) = (tmp_path / "out").iterdir()
    configuration = read_configuration(written)
    assert configuration.scheduler_name == "gpus"
    assert configuration.kai.queue_label == "example.com/queue"
    assert (configuration.node_pool.label, configuration.node_pool.name) == (
        "example.com/pool",
        "a",
    )
