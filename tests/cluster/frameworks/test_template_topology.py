"""Topology annotations on what users apply, with the pods that real controllers make of it."""

import itertools
from collections.abc import Mapping

import msgspec
import pytest

from kai_py.api.records.core import PartialObjectMetadata
from kai_py.api.records.unstructured import unstructured
from kai_py.grouping.owner_chain import GroupKind
from kai_py.snapshot.snapshot import Snapshot
from tests.cluster.frameworks.conftest import RunController
from tests.cluster.frameworks.controllers import JOB_SET, TRAINER, TRAINING_OPERATOR, submit_with
from tests.cluster.frameworks.workloads import runtimes, sample, train_job
from tests.dialects import feeding
from tests.grouping.test_template_topology import DOMAINS, LEVELS, TABLE, effective_levels
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually

LONG = 60.0
WORKERS = 2
JOBS = {
    "PyTorchJob": ("pytorch/simple.yaml", "pytorchReplicaSpecs"),
    "TFJob": ("tensorflow/simple.yaml", "tfReplicaSpecs"),
    "XGBoostJob": ("xgboost/xgboostjob.yaml", "xgbReplicaSpecs"),
    "PaddleJob": ("paddlepaddle/simple-cpu.yaml", "paddleReplicaSpecs"),
    "JAXJob": ("jax/cpu-demo/demo.yaml", "jaxReplicaSpecs"),
    "MPIJob": ("mpi/tensorflow-mnist.yaml", "mpiReplicaSpecs"),
}
RUNTIMES = {"torch_distributed": WORKERS, "mpi_distributed": WORKERS + 1}
"""By runtime the nodes to ask for; the launcher of the second is one."""
PODS = "/api/v1/namespaces/default/pods"


levels_each = pytest.mark.parametrize(
    "levels",
    [("required", "segments"), pytest.param(tuple(LEVELS), marks=pytest.mark.nightly)],
    ids=["two", "all"],
)


@pytest.mark.slow
@levels_each
async def test_annotations_of_jobs_of_the_training_operator(
    real: Cluster, run_controller: RunController, levels: tuple[str, ...]
):
    await run_controller(TRAINING_OPERATOR)
    cases = list(itertools.product(JOBS, ("workload", "template"), levels))
    for number, case in enumerate(cases):
        await real.submit(annotated_job(f"job-{number}", *case))
    pods = await created(real, "job", len(cases), "worker")
    kinds = {kind: f"/apis/kubeflow.org/v1/{kind.lower()}s" for kind in JOBS}
    snapshot = await read(real, kinds, pods)
    for number, case in enumerate(cases):
        assert_honoured(snapshot, f"{case[0]}/job-{number}", "worker", case)


@pytest.mark.slow
@levels_each
async def test_annotations_of_train_jobs_and_their_runtimes(
    real: Cluster, run_controller: RunController, levels: tuple[str, ...]
):
    await run_controller(JOB_SET)
    await run_controller(TRAINER)
    places = ("workload", "job set", "template", "pods")
    cases = list(itertools.product(RUNTIMES, places, levels))
    for number, case in enumerate(cases):
        await submit_with(real, *annotated_train_job(f"train-{number}", *case))
    pods = await created(real, "train", len(cases), "node")
    kinds = {
        "TrainJob": "/apis/trainer.kubeflow.org/v1alpha1/trainjobs",
        "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
        "Job": "/apis/batch/v1/jobs",
    }
    snapshot = await read(real, kinds, pods)
    for number, case in enumerate(cases):
        assert_honoured(snapshot, f"JobSet/train-{number}", "node", case)


def annotated_job(name: str, kind: str, place: str, asked: str) -> Document:
    path, field = JOBS[kind]
    found = sample(TRAINING_OPERATOR, f"examples/{path}")
    found["metadata"]["name"] = name
    worker = found["spec"][field]["Worker"]
    worker["replicas"] = WORKERS
    annotate(found if place == "workload" else worker["template"], asked)
    return found


def annotated_train_job(
    name: str, runtime: str, place: str, asked: str
) -> tuple[list[Document], Document]:
    """A runtime and the job that refers to it."""
    (found,) = runtimes(f"manifests/base/runtimes/{runtime}.yaml")
    found["metadata"]["name"] = name
    job = train_job(name, RUNTIMES[runtime])
    job["metadata"]["name"] = name
    roles = found["spec"]["template"]["spec"]["replicatedJobs"]
    template = next(each["template"] for each in roles if each["name"] == "node")
    if place == "job set":
        job["spec"]["annotations"] = dict(LEVELS[asked])
        return [found], job
    places = {"workload": job, "template": template, "pods": template["spec"]["template"]}
    annotate(places[place], asked)
    return [found], job


def annotate(document: Document, asked: str) -> None:
    meta = document.setdefault("metadata", {})
    meta["annotations"] = meta.get("annotations", {}) | LEVELS[asked]


async def created(real: Cluster, prefix: str, count: int, role: str) -> list[Document]:
    """The pods, once all workers of every workload exist."""

    async def whole() -> list[Document]:
        pods = await real.api.items(PODS)
        names = [each["metadata"]["name"] for each in pods if role in each["metadata"]["name"]]
        for number in range(count):
            job = f"{prefix}-{number}-"
            assert sum(name.startswith(job) for name in names) >= WORKERS, f"{job}: {names}"
        return pods

    return await eventually(whole, within=LONG)


async def read(real: Cluster, kinds: Mapping[str, str], pods: list[Document]) -> Snapshot:
    """The gangs that the scheduler derives of what is in the cluster."""
    cluster = feeding.Cluster()
    for kind, path in kinds.items():
        group, version, plural = path.removeprefix("/apis/").split("/")
        for found in await real.api.items(path):
            whole = found | {"apiVersion": f"{group}/{version}", "kind": kind}
            if group == "batch":
                cluster.add(whole)
                continue
            paths = TABLE.paths(GroupKind(group, kind))
            record = (
                unstructured(whole, paths)
                if paths
                else msgspec.convert(whole, PartialObjectMetadata)
            )
            cluster.planner.builder.apply(f"{plural}.{group}", None, record)
    cluster.add({"apiVersion": "v1", "kind": "Pod", **each} for each in pods)
    return cluster.snapshot()


def assert_honoured(snapshot: Snapshot, key: str, role: str, case: tuple[str, str, str]) -> None:
    """Each pod of the role has the level; segments that cannot be formed are reported."""
    _, place, asked = case
    gang = snapshot.gangs[f"default/{key}"]
    told = {each.pod.name: each.markers for each in snapshot.ignored_markers}
    of_role = [member for member in gang.members if role in member.pod.name]
    assert len(of_role) >= WORKERS, case
    for member in of_role:
        levels = effective_levels(gang, member, DOMAINS[asked])
        reported = any("rack" in marker for marker in told.get(member.pod.name, ()))
        assert "rack" in levels or ("segments" in asked and (gang.problem or reported)), case
    if place in ("template", "pods") and asked == "required":
        assert not gang.problem, case
        assert gang.tree.topology is None, case
        others = [member for member in gang.members if member not in of_role]
        assert not any(effective_levels(gang, each, DOMAINS[asked]) for each in others), case
