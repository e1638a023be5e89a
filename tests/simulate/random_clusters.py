"""Clusters in files from a seed: everything that meets in them, and what makes no sense."""

import random
from datetime import UTC, datetime

from tests.simulate.cluster_model import GPU, HOST, MODEL, QUEUE, RACK, SIZE, ClusterModel
from tests.support.cluster.api import Document

NOW = 1_800_000_000.0
LONG = "30h"
"""A min runtime that no pod has reached."""
MAIN = {"name": "main", "image": "i"}
KAI, DRA = "scheduling.kai.io/v1alpha1", "resource.k8s.io/v1"


def at(seconds: float) -> str:
    return datetime.fromtimestamp(NOW - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def made(kind: str, name: str, spec: Document, api: str = "v1", **more: Document) -> Document:
    meta = {"name": name, "uid": f"{kind}-{name}", "creationTimestamp": at(9000)}
    meta |= {} if kind in ("Node", "Queue", "ResourceSlice") else {"namespace": "default"}
    meta |= more.pop("metadata", {})
    return {"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec, **more}


def random_cluster(seed: int) -> list[Document]:
    """The cluster of a seed; pods that run fit where they are."""
    chance = random.Random(seed)
    found = [*_nodes(chance), *_queues(chance), made("DeviceClass", "any", {}, DRA)]
    for i in range(chance.randint(4, 9)):
        found += _gang(chance, f"g{i}", found)
    if chance.random() < 0.3:
        status = {"disruptionsAllowed": chance.randint(0, 1), "observedGeneration": 1}
        spec = {"selector": {"matchLabels": {"app": "g0"}}, "maxUnavailable": 1}
        meta = {"generation": 1}
        found.append(
            made("PodDisruptionBudget", "g0", spec, "policy/v1", metadata=meta, status=status)
        )
    found += chance.sample(_junk(), 3)
    return chance.sample(found, len(found))


def _nodes(chance):
    for i in range(chance.randint(2, 4)):
        name, spec, plugin = f"n{i}", {}, chance.random() < 0.5
        odd = chance.choice((*[""] * 12, "taint", "taint", "cordoned", "not ready"))
        if odd == "taint":
            spec["taints"] = [
                {"key": "k", "effect": chance.choice(("NoSchedule", "PreferNoSchedule"))}
            ]
        if odd == "cordoned":
            spec["unschedulable"] = True
        most = {"cpu": chance.choice(("6", "16")), "memory": "64Gi", "pods": chance.choice("49")}
        most |= {GPU: chance.choice("24")} if plugin else {}
        ready = [{"type": "Ready", "status": "Unknown" if odd == "not ready" else "True"}]
        labels = {"labels": {HOST: name, RACK: f"r{i // 2}", "disk": chance.choice("ab")}}
        status = {"allocatable": most, "conditions": ready}
        yield made("Node", name, spec, metadata=labels, status=status)
        if not plugin:
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            models = [
                {"model": {"string": chance.choice("ab")}} for _ in range(chance.choice((2, 4)))
            ]
            devices = [{"name": f"d{j}", "attributes": each} for j, each in enumerate(models)]
            spec = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": pool, "devices": devices}
            yield made("ResourceSlice", name, spec, DRA)


def _queues(chance):
    """Three levels; limits are in the middle and below."""
    parents = {"top": "", "a": "top", "b": "top", "a0": "a", "a1": "a", "b0": "b", "b1": "b"}
    for name, parent in parents.items():
        spec = {"deservedGPUs": chance.randint(0, 3) * 3 ** (2 - len(name)) if parent else 24}
        spec |= {"parent": parent} if parent else {}
        if parent and chance.random() < 0.3:
            spec["maxGPUs"] = spec["deservedGPUs"] + chance.randint(0, 3)
        if chance.random() < 0.1:
            spec[chance.choice(("preemptMinRuntime", "reclaimMinRuntime"))] = LONG
        yield made("Queue", name, spec, KAI)


def _shape(chance, name):
    """The spec of a gang's pods, and the request of their claims; {}: they have none."""
    gpus = chance.choice(({}, {GPU: "1"}, {GPU: "1"}, {GPU: "2"}, {GPU: "2"}))
    claim = chance.choice(({}, {}, {"count": 1}, {"count": 2}))
    gpus = {} if claim else gpus
    amounts = {"cpu": chance.choice(("1", "2", "500m")), "memory": "1Gi"}
    container = {**MAIN, "resources": {"requests": amounts | gpus, "limits": gpus}}
    spec = {"schedulerName": "kai-scheduler", "containers": [container], "restartPolicy": "Never"}
    if claim and chance.random() < 0.3:
        expression = f'{MODEL}"{chance.choice("ab")}"'
        claim["selectors"] = [{"cel": {"expression": expression}}]
    if claim:
        spec["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "t"}]
        container["resources"]["claims"] = [{"name": "c"}]
    if chance.random() < 0.2:
        side = chance.choice(({}, {"restartPolicy": "Always"}))
        amounts = {"requests": {"cpu": chance.choice("13")}}
        spec["initContainers"] = [{**MAIN, "name": "init", "resources": amounts, **side}]
    if chance.random() < 0.2:
        selector = {"matchLabels": {"app": chance.choice((name, "g0"))}}
        terms = [{"labelSelector": selector, "topologyKey": HOST}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        spec["affinity"] = {"podAntiAffinity": required}
    elif chance.random() < 0.2:
        rule = {"labelSelector": {"matchLabels": {"app": name}}, "maxSkew": 1}
        rule |= {"topologyKey": chance.choice((HOST, RACK)), "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [rule]
    spec |= {"nodeSelector": {"disk": chance.choice("ab")}} if chance.random() < 0.1 else {}
    spec |= {"tolerations": [{"key": "k", "operator": "Exists"}]} if chance.random() < 0.2 else {}
    spec |= {"preemptionPolicy": "Never"} if chance.random() < 0.1 else {}
    spec |= {"priority": chance.choice((0, 5, 9))}
    return spec, claim and {"name": "r", "exactly": {"deviceClassName": "any", **claim}}


def _owner(api, kind, name):
    owner = {"apiVersion": api, "kind": kind, "name": name, "uid": f"{kind}-{name}"}
    return {"ownerReferences": [{**owner, "controller": True}]}


def _gang(chance, name, others):
    """A Job with its pods, which wait, or run beside the ``others``."""
    (spec, request), size = _shape(chance, name), chance.choice((1, 1, 2, 2, 3, 4))
    labels = {"labels": {QUEUE: chance.choice(("a0", "a0", "a1", "b0")), "app": name}}
    if chance.random() < 0.15:
        labels["labels"]["kai.scheduler/preemptibility"] = "non-preemptible"
    least = chance.choice((size, size, chance.randint(1, size)))
    job = {
        "parallelism": size,
        "completions": size,
        "backoffLimit": 1000,
        "template": {"spec": spec},
    }
    meta = {**labels, "annotations": {SIZE: str(least)}}
    runs, gated = chance.random() < 0.5, chance.random() < 0.04
    gates = {"schedulingGates": [{"name": "example.com/wait"}]} if gated else {}
    pods, claims = [], []
    for each in (f"{name}-{i}" for i in range(size)):
        used = [{"name": "c", "resourceClaimName": f"{each}-c"}] if request else []
        own = {**labels, **_owner("batch/v1", "Job", name), "creationTimestamp": at(5000)}
        status = {"phase": "Pending", "resourceClaimStatuses": used}
        pods.append(made("Pod", each, {**spec, **gates}, metadata=own, status=status))
        if request:
            notes = {"annotations": {"resource.kubernetes.io/pod-claim-name": "c"}}
            own, devices = _owner("v1", "Pod", each) | notes, {"devices": {"requests": [request]}}
            claims.append(made("ResourceClaim", f"{each}-c", devices, DRA, metadata=own, status={}))
    if runs and not gated:
        _run(chance, pods, claims, least, others)
    yield from (made("Job", name, job, "batch/v1", metadata=meta), *pods, *claims)


def _run(chance, pods, claims, least, others):
    """Put pods on nodes where they fit, mostly no fewer than ``least``."""
    model, placed = ClusterModel([*others, *pods, *claims]), {}
    for pod in pods:
        nodes = chance.sample(list(model.nodes), len(model.nodes))
        if node := next(model.ways(pod, nodes), ""):
            placed[pod["metadata"]["uid"]] = node
    if len(placed) < least and chance.random() < 0.8:
        return
    since = {"status": "True", "lastTransitionTime": at(5000)}
    conditions = [{"type": kind, **since} for kind in ("Ready", "PodScheduled")]
    for pod in (each for each in pods if each["metadata"]["uid"] in placed):
        pod["spec"]["nodeName"] = placed[pod["metadata"]["uid"]]
        pod["status"] |= {"phase": "Running", "startTime": at(5000), "conditions": conditions}
        if chance.random() < 0.06:
            pod["metadata"] |= {"deletionTimestamp": at(5), "deletionGracePeriodSeconds": 30}
    for claim in claims:
        user = claim["metadata"]["ownerReferences"][0]
        if user["uid"] in placed:
            result = {"request": "r", "driver": "gpu.nvidia.com", "pool": placed[user["uid"]]}
            chosen = model.devices[claim["metadata"]["name"]]
            results = [{**result, "device": each.split("/")[1]} for each in chosen]
            reserved = [{"resource": "pods", "name": user["name"], "uid": user["uid"]}]
            claim["status"] = {
                "allocation": {"devices": {"results": results}},
                "reservedFor": reserved,
            }


def _junk():
    """Objects that nothing can be done with, and that must not matter."""
    ours, meta = {"schedulerName": "kai-scheduler", "containers": [MAIN]}, {"labels": {QUEUE: "a0"}}
    claims = [{"name": "c", "resourceClaimName": "nowhere"}]
    lost = {"nodeName": "gone", "resourceClaims": claims}
    return [
        made("Pod", "junk-none", {**ours, "containers": []}, metadata=meta),
        made("Pod", "junk-lost", ours | lost, metadata=meta),
        made("Pod", "junk-queue", ours, metadata={"labels": {QUEUE: "?"}}),
        made("Pod", "junk-claim", ours | {"resourceClaims": claims}, metadata=meta),
        made("Queue", "junk", {"parent": "junk"}, KAI),
        made("Job", "junk", {"parallelism": 10**9, "template": {}}, "batch/v1"),
        made("ResourceClaim", "junk", {"devices": {"requests": [{"name": "r"}]}}, DRA),
    ]
