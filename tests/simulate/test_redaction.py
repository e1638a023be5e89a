"""A redacted cluster names no person and is decided as the real one.

Redacted pods form the gangs that they form under their own names.
"""

import json
from collections.abc import Iterable
from copy import deepcopy

import pytest

from kai_py.api.node_departures import DepartureTreatment
from kai_py.api.spot import SpotUse
from kai_py.config import Configuration
from kai_py.grouping.gang import Subgroup
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.files.objects import Document
from kai_py.simulate.files.redaction import is_common, redact
from tests.cluster.fake_kubelet.nodes import FakeNode, gpu_nodes, node_document, slice_document
from tests.corpus.test_grouping import CASES, grouped_documents, whole_objects
from tests.simulate.clusters import NOW, queue, simulated
from tests.simulate.test_situations import staged
from tests.support import yaml_text
from tests.support.cluster.manifests import claim_template, gpu_request, job, pod, pod_spec
from tests.support.mixtures import MIXTURES, budget, volume_in
from tests.support.situations import SITUATIONS, Situation, few_fast

SECRET = "acme-secret"
ADDRESS = "10.9.8.7"


def decided(documents: list[Document]):
    """By uid, as names differ: where pods go, which are evicted, what stops the others."""
    cluster = SimulatedCluster(Configuration(), start=NOW, seed=1)
    cluster.load(documents)
    nodes = {
        each["metadata"]["name"]: each["metadata"]["uid"]
        for each in documents
        if each["kind"] == "Node"
    }
    plan = cluster.planner.decide(cluster.snapshot())
    return (
        [(p.pod.uid, nodes[p.node], len(p.allocate)) for g in plan.placements for p in g.pods],
        [(each.pod.uid, each.action) for each in plan.evictions],
        [(each.owner.uid, each.stage, len(each.pods)) for each in plan.unplaced],
        [(each.pod.uid, nodes[each.node]) for each in plan.nominations],
        sorted(tuple(sorted(share.fair_share.values())) for share in plan.queues),
    )


@pytest.mark.parametrize("situation", few_fast([*SITUATIONS, *MIXTURES]))
def test_the_plan_is_the_same(situation: Situation):
    documents = staged(situation).documents()
    assert decided(redact(documents)) == decided(documents)


def secret_job() -> Document:
    """A Job with a name, or an address, wherever its pods can hold one."""
    spec = pod_spec(
        template=f"{SECRET}-gpu",
        nodeSelector={f"{SECRET}.example.com/pool": SECRET, "kubernetes.io/os": "linux"},
        serviceAccountName=SECRET,
        imagePullSecrets=[{"name": SECRET}],
        hostAliases=[{"ip": ADDRESS, "hostnames": [f"{SECRET}.example.com"]}],
        tolerations=[{"key": SECRET, "operator": "Exists", "effect": "NoSchedule"}],
        volumes=[
            {"name": SECRET, "hostPath": {"path": f"/home/{SECRET}"}},
            {"name": "nfs", "nfs": {"server": ADDRESS, "path": f"/{SECRET}"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        ],
    )
    container = spec["containers"][0]
    container |= {
        "image": f"registry.{SECRET}.com/{SECRET}:1",
        "command": [SECRET],
        "args": [f"--token={SECRET}"],
        "env": [{"name": "TOKEN", "value": SECRET}],
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "volumeMounts": [{"name": SECRET, "mountPath": f"/{SECRET}"}],
        "livenessProbe": {"httpGet": {"host": ADDRESS, "path": f"/{SECRET}", "port": 80}},
    }
    annotations = {
        "scheduling.kai.io/queue-name": f"{SECRET}-queue",
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"name": SECRET}),
        f"{SECRET}.example.com/owner": "jane@acme-secret.com",
        "kubernetes.io/description": f"run by {SECRET} on {ADDRESS}",
        "note": SECRET,
    }
    work = job(f"{SECRET}-job", 2, spec, annotations=annotations)
    work["metadata"]["labels"] = {SECRET: SECRET, "app.kubernetes.io/name": SECRET}
    return work


def secret_node(node: FakeNode) -> Document:
    """A node with names and addresses in its labels and status."""
    machine = node_document(node, "2027-01-15T08:00:00Z")
    machine["metadata"]["labels"] |= {f"{SECRET}.example.com/pool": SECRET}
    machine["status"]["images"] = [{"names": [f"{SECRET}:1"], "sizeBytes": 1}]
    machine["status"]["addresses"] = [{"type": "InternalIP", "address": ADDRESS}]
    machine["status"]["conditions"][0]["message"] = f"{SECRET} on {ADDRESS}"
    return machine


def full_of_secrets() -> list[Document]:
    """A cluster in which names and addresses stand wherever the API can hold one."""
    [node] = gpu_nodes(1, prefix=SECRET, published_gpus=2)
    selector = f'device.attributes["gpu.nvidia.com"].owner != "{SECRET}-0"'
    cluster = simulated(
        queue(f"{SECRET}-queue", 8),
        claim_template(f"{SECRET}-gpu", gpu_request(selectors=[{"cel": {"expression": selector}}])),
        budget(f"{SECRET}-budget", 1, {SECRET: SECRET}),
        *volume_in(SECRET),
        nodes=0,
    )
    made = cluster.embedded.create(secret_node(node))
    devices = slice_document(node, made["metadata"]["uid"])
    for device in devices["spec"]["devices"]:
        device["attributes"]["owner"] = {"string": f"{SECRET}-0"}
    cluster.embedded.create(devices)
    cluster.embedded.create(secret_job())
    cluster.settle(60)
    documents = deepcopy(cluster.documents())
    for document in documents:
        if document["kind"] == "Pod":
            document["status"] |= {
                "hostIP": ADDRESS,
                "podIPs": [{"ip": ADDRESS}],
                "message": SECRET,
                "containerStatuses": [{"name": SECRET, "image": SECRET, "imageID": SECRET}],
            }
    return documents


def test_nothing_of_a_name_is_left():
    documents = full_of_secrets()
    hidden = json.dumps(redact(documents)).lower()
    assert "acme" not in hidden
    assert "secret" not in hidden
    assert "jane" not in hidden
    assert ADDRESS not in hidden
    assert hidden.count("linux") >= 2
    assert decided(redact(documents)) == decided(documents)


def test_what_is_redacted_twice_is_decided_the_same():
    documents = full_of_secrets()
    assert decided(redact(redact(documents))) == decided(documents)


FOREIGN = {
    "apiVersion": "acme.example.com/v1",
    "kind": "Trainer",
    "metadata": {"name": SECRET, "namespace": "default", "uid": "trainer"},
    "spec": {"roles": {SECRET: {"replicas": 2, "image": SECRET}}, "notes": [SECRET]},
}


def test_owners_of_other_kinds_keep_their_form():
    [hidden] = redact([FOREIGN])
    [role] = hidden["spec"]["roles"]
    assert hidden["spec"]["roles"][role] == {"replicas": 2}
    assert hidden["spec"]["notes"] == [role] == [hidden["metadata"]["name"]]


def test_words_sort_as_before_and_keep_their_numbers():
    pods = [pod(name) for name in ("web-10", "web-9", "a", "b-x")]
    before = [each["metadata"]["name"] for each in pods]
    after = [each["metadata"]["name"] for each in redact(pods)]
    order = sorted(range(len(pods)), key=before.__getitem__)
    assert sorted(range(len(pods)), key=after.__getitem__) == order
    assert after[0].endswith("-10")
    assert after[1].endswith("-9")


COMPOSED = {"jobset-rounds"}
"""Cases in which a name is composed of others, which redaction does not know."""


@pytest.mark.parametrize(
    "path",
    [path for path in CASES if path.stem not in COMPOSED],
    ids=lambda path: path.stem,
)
def test_pods_of_a_framework_form_the_same_gangs(path):
    documents = whole_objects(yaml_text.read(path.read_text()))
    assert told(redact(documents)) == told(documents)


def told(documents: Iterable[Document]):
    """By the uids of its pods, each gang's form, and which pods it has in one leaf.

    Of pods to come: what they request.
    """
    gangs = {}
    for gang in grouped_documents(documents).gangs.values():
        leaves: dict[str, list[str]] = {}
        for member in gang.members:
            leaves.setdefault(member.subgroup, []).append(member.pod.uid)
        waiting = sorted(each.pod.uid for each in gang.members if each.waiting_for)
        later = [sorted(each.shape.requests.items()) for each in gang.placeholders]
        pods = sorted(map(sorted, leaves.values())), waiting, sorted(later)
        form = shape(gang.tree), bool(gang.problem), *pods
        gangs[tuple(sorted(each.pod.uid for each in gang.members))] = form
    return gangs


def shape(tree: Subgroup):
    """The tree without names; of siblings in any order."""
    below = sorted(map(shape, tree.children), key=repr)
    return tree.min_members, tree.min_subgroups, tree.topology is None, below


@pytest.mark.parametrize(
    "word",
    [*DepartureTreatment, *SpotUse, "suspend", "restart", "semi-preemptible", "4g", "1 gb", "2Gi"],
)
def test_what_settings_choose_from_is_no_name(word):
    assert is_common(word)


def test_annotations_that_cannot_be_read_are_replaced_as_texts():
    texts = ["[" * 5000, '["acme"', '{"a":' * 5000]
    for text in texts:
        annotations = {"scheduling.kai.io/admitted": text}
        meta = {"name": "p", "namespace": "n", "annotations": annotations}
        [hidden] = redact([{"apiVersion": "v1", "kind": "Pod", "metadata": meta}])
        assert "acme" not in hidden["metadata"]["annotations"]["scheduling.kai.io/admitted"]
