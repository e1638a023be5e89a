"""The start state of a recorded KAI case as objects of KAI's API, read by the dialect."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kai_py.api.gpu_share import MIG_PREFIX
from kai_py.api.times import format_time
from kai_py.dra.class_info import GpuDefinition
from kai_py.policy.fairness_rules import KAI
from kai_py.snapshot.accounting import Accounting
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.assumptions import STUCK_AFTER_SECONDS
from tests.corpus.kai_cluster import GPU, GUARANTEED, NOW, groups_of, node_labels, numa_report
from tests.dialects.feeding import Cluster, Document

RUNNING = ("Bound", "Binding", "Running", "Releasing", "StuckInReleasing")
LEFT_SINCE = {"Releasing": 0.0, "StuckInReleasing": 2 * STUCK_AFTER_SECONDS}
"""Seconds for which a pod of this status should have been gone."""
ENDED = ("Succeeded", "Failed")
DEVICES = "resource.k8s.io/v1"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS = {"preferred_level": "preferredTopologyLevel", "required_level": "requiredTopologyLevel"}


def snapshot_of_objects(cluster: Mapping, accounting: Accounting) -> Snapshot:
    """What the builder makes of the case's Nodes, Queues, Topologies, PodGroups and Pods."""
    del accounting
    devices = {"gpuDrivers": _gpu_drivers(cluster)}
    return Cluster(objects_of(cluster), rules="kai", devices=devices).snapshot(NOW)


def gpu_rules(cluster: Mapping) -> GpuDefinition:
    """What counts as GPUs: drivers of classes that say so in their names, and slices of MIG."""
    return GpuDefinition(_gpu_drivers(cluster), mig_slices_per_gpu=KAI.mig_slices_per_gpu)


def _gpu_drivers(cluster: Mapping) -> tuple[str, ...]:
    classes = (cluster.get("dra") or {}).get("device_classes", ())
    return tuple(_driver(name) for name in classes if "gpu" in name)


def _driver(device_class: str) -> str:
    """The name of a class, and of the driver of its devices, as the API takes it."""
    return device_class.replace("/", ".")


def objects_of(cluster: Mapping) -> Iterator[Document]:
    """The objects of a case, as manifests."""
    served = {each["node"] for each in cluster.get("dra", {}).get("resource_slices", ())}
    yield from (_node(node, by_claim=node["name"] in served) for node in cluster["nodes"])
    yield from (_node_topology(node) for node in cluster["nodes"] if "numa" in node)
    yield from map(_queue, cluster["queues"])
    yield from map(_topology, cluster.get("topologies", ()))
    yield from _device_objects(cluster)
    for value in sorted({job["priority"] for job in cluster["jobs"]}):
        yield _object("scheduling.k8s.io/v1", "PriorityClass", f"level-{value}", value=value)
    profiles = {
        node["name"]: [name for name in node["allocatable"] if name.startswith(MIG_PREFIX)]
        for node in cluster["nodes"]
    }
    for job in cluster["jobs"]:
        yield _pod_group(job)
        yield from (_pod(job, task, profiles) for task in job["tasks"])


def _object(api_version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"{kind}-{name}", **fields.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _amounts(amounts: Mapping[str, float]) -> dict[str, str]:
    names = {"cpu_milli": "cpu", "gpu": GPU}
    return {
        names.get(name, name): f"{int(amount)}m" if name == "cpu_milli" else str(int(amount))
        for name, amount in amounts.items()
        if amount
    }


def _node(node: Mapping, *, by_claim: bool) -> Document:
    """``by_claim``: its GPUs are in its slices alone."""
    amounts = {n: a for n, a in node["allocatable"].items() if n != "gpu" or not by_claim}
    status = {
        "allocatable": _amounts(amounts),
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    metadata = {"labels": node_labels(node)}
    return _object("v1", "Node", node["name"], metadata=metadata, status=status)


def _node_topology(node: Mapping) -> Document:
    fields = msgspec.to_builtins(numa_report(node))
    parts = {name: fields[name] for name in ("attributes", "zones")}
    return _object("topology.node.k8s.io/v1alpha2", "NodeResourceTopology", node["name"], **parts)


def _queue(queue: Mapping) -> Document:
    resources = {
        name: {
            "quota": queue[name]["quota"],
            "limit": queue[name]["limit"],
            "overQuotaWeight": abs(queue[name]["over_quota_weight"]),
        }
        for name in ("gpu", "cpu", "memory")
    }
    spec = {
        "parentQueue": queue["parent"],
        "priority": queue["priority"],
        "resources": resources,
    }
    for ours, theirs in (("preempt", "preemptMinRuntime"), ("reclaim", "reclaimMinRuntime")):
        seconds = queue.get(f"{ours}_min_runtime_seconds")
        if seconds is not None:
            spec[theirs] = f"{seconds}s"
    created = {"creationTimestamp": format_time(NOW - 1e6 + queue["creation_rank"])}
    return _object("scheduling.run.ai/v2", "Queue", queue["name"], metadata=created, spec=spec)


def _device_objects(cluster: Mapping) -> Iterator[Document]:
    dra = cluster.get("dra", {})
    for name in dra.get("device_classes", ()):
        cel = {"cel": {"expression": f"device.driver == {json.dumps(_driver(name))}"}}
        yield _object(DEVICES, "DeviceClass", _driver(name), spec={"selectors": [cel]})
    for each in dra.get("resource_slices", ()):
        pool = {"name": each["node"], "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": str(number)} for number in range(each["count"])]
        driver, node = _driver(each["device_class"]), each["node"]
        spec = {"driver": driver, "pool": pool, "nodeName": node, "devices": devices}
        yield _object(DEVICES, "ResourceSlice", each["name"], spec=spec)
    yield from map(_claim, dra.get("resource_claims", ()))


def _claim(claim: Mapping) -> Document:
    known = claim.get("status", {})
    users = known.get("reserved_for", ())
    status = {"reservedFor": [{"resource": "pods", "name": u, "uid": u} for u in users]}
    results = known.get("allocation", {}).get("devices", ())
    name = results[0]["request"] if results else claim["name"]
    if results:
        named = [result | {"driver": _driver(result["driver"])} for result in results]
        status["allocation"] = {"devices": {"results": named}}
    exactly = {"deviceClassName": _driver(claim["device_class"]), "count": claim["count"]}
    return _object(
        DEVICES,
        "ResourceClaim",
        claim["name"],
        metadata={"namespace": claim["namespace"], "labels": claim.get("labels", {})},
        spec={"devices": {"requests": [{"name": name, "exactly": exactly}]}},
        status=status,
    )


def _topology(topology: Mapping) -> Document:
    levels = [
        {"nodeLabel": level} if isinstance(level, str) else {**level, "nodeLabel": level["label"]}
        for level in topology["levels"]
    ]
    spec = {"levels": levels}
    return _object("kai.scheduler/v1alpha1", "Topology", topology["name"], spec=spec)


def _pod_group(job: Mapping) -> Document:
    root = job["sub_groups"]
    entries = [] if _is_single(root) else list(_entries(root, ""))
    spec = {
        "queue": job["queue"],
        "priorityClassName": f"level-{job['priority']}",
        "preemptibility": job["preemptibility"],
        "subGroups": entries,
        "topologyConstraint": _constraint(root),
    }
    if not entries:
        spec["minMember"] = root["pod_sets"][0]["min_available"]
        spec["topologyConstraint"] = _constraint(root) or _constraint(root["pod_sets"][0])
    elif "min_sub_groups" in root:
        spec["minSubGroup"] = root["min_sub_groups"]
    for ours, theirs in (
        ("staleness_grace_seconds", "stalenessGracePeriod"),
        ("preemption_delay_seconds", "preemptionDelay"),
    ):
        if job.get(ours) is not None:
            spec[theirs] = f"{job[ours]}s"
    stale = job.get("stale_seconds")
    marks = (
        {}
        if stale is None
        else {"kai.scheduler/stale-podgroup-timestamp": format_time(NOW - stale)}
    )
    return _object(
        "scheduling.run.ai/v2alpha2",
        "PodGroup",
        job["name"],
        metadata={
            "namespace": job.get("namespace") or "default",
            "creationTimestamp": format_time(NOW - 60 * job["age_minutes"]),
            "annotations": marks,
        },
        spec=spec,
    )


def _is_single(root: Mapping) -> bool:
    names = [leaf["name"] for leaf in root.get("pod_sets", ())]
    return names == ["default"] and not root.get("children")


def _entries(group: Mapping, parent: str) -> Iterator[dict[str, Any]]:
    for leaf in group.get("pod_sets", ()):
        yield _entry(leaf, parent, minMember=leaf["min_available"])
    for child in group.get("children", ()):
        floor = {"minSubGroup": child["min_sub_groups"]} if "min_sub_groups" in child else {}
        yield _entry(child, parent, **floor)
        yield from _entries(child, child["name"])


def _entry(group: Mapping, parent: str, **floor: int) -> dict[str, Any]:
    entry = {"name": group["name"], "topologyConstraint": _constraint(group), **floor}
    return {**entry, "parent": parent} if parent else entry


def _constraint(group: Mapping) -> dict[str, str] | None:
    found = group.get("topology_constraint")
    if not found:
        return None
    return {TERMS.get(name, name): value for name, value in found.items()}


def _pod(job: Mapping, task: Mapping, profiles: Mapping[str, list[str]]) -> Document:
    """``profiles``: MIG profiles by node; a legacy task names one instead of asking for it."""
    labels = dict(task.get("labels", {}))
    if "sub_group" in task:
        labels["kai.scheduler/subgroup-name"] = task["sub_group"]
    started = format_time(NOW - (job.get("last_start_age_seconds") or 0))
    metadata = {
        "namespace": job.get("namespace") or "default",
        "uid": task["name"],
        "labels": labels | _gpu_groups(task),
        "annotations": {
            "pod-group-name": job["name"],
            **_gpu_share(task),
            **task.get("annotations", {}),
            **(dict.fromkeys(_profiles_of(task, profiles), "1") if task.get("legacy_mig") else {}),
        },
        "creationTimestamp": format_time(NOW - 60 * job["age_minutes"]),
    }
    if task["status"] in LEFT_SINCE:
        metadata["deletionTimestamp"] = format_time(NOW - LEFT_SINCE[task["status"]])
    by_claim = "dra" in task["gpu_request"]
    not_asked = {"pods", "gpu"} if _gpu_share(task) or by_claim else {"pods"}
    requests = {name: amount for name, amount in task["request"].items() if name not in not_asked}
    resources = {"requests": _amounts(requests)}
    if task.get("qos") == GUARANTEED:
        resources["limits"] = resources["requests"]
    spec = {
        "schedulerName": "kai-scheduler",
        "containers": [{"name": "main", "resources": resources}],
        "affinity": _affinity(task),
        "volumes": [_volume(claim) for claim in task.get("pvcs", ())],
        "resourceClaims": [
            {"name": use["name"], "resourceClaimName": use["claim"]}
            for use in task.get("resource_claims", ())
        ],
    }
    status: dict[str, Any] = {"phase": "Pending"}
    if task.get("nominated"):
        status["nominatedNodeName"] = task["nominated"]
    if task["status"] in RUNNING:
        spec["nodeName"] = task["node"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": started}
        status = {"phase": "Running", "conditions": [scheduled]}
    if task["status"] in ENDED:
        status = {"phase": task["status"]}
    if task["status"] == "Gated":
        spec["schedulingGates"] = [{"name": "example.com/gate"}]
    return _object("v1", "Pod", task["name"], metadata=metadata, spec=spec, status=status)


def _profiles_of(task: Mapping, profiles: Mapping[str, list[str]]) -> list[str]:
    """The MIG profiles that a legacy task may name: those of its node, or of any if it has none."""
    everywhere = dict.fromkeys(name for found in profiles.values() for name in found)
    return profiles.get(task.get("node", ""), list(everywhere))


def _volume(claim: str | Mapping) -> dict[str, Any]:
    name = claim if isinstance(claim, str) else claim["name"]
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


def _gpu_share(task: Mapping) -> dict[str, str]:
    """Annotations that ask for parts of GPUs."""
    if task["request_type"] not in ("Fraction", "GpuMemory"):
        return {}
    asked = task["gpu_request"]
    devices = {"gpu-fraction-num-devices": str(asked["devices"])} if asked["devices"] > 1 else {}
    if asked.get("memory_mib"):
        return {"gpu-memory": str(int(asked["memory_mib"])), **devices}
    return {"gpu-fraction": f"{asked['portion']:g}", **devices}


def _gpu_groups(task: Mapping) -> dict[str, str]:
    """Labels that name the shared GPUs a pod has a part of."""
    groups = groups_of(task)
    if len(groups) == 1:
        return {"runai-gpu-group": groups[0]}
    return {f"runai-gpu-group/{group}": group for group in groups}


def _affinity(task: Mapping) -> dict[str, Any]:
    nodes = [{"matchExpressions": term} for term in task.get("node_affinity") or ()]
    rules = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": nodes}}} if nodes else {}
    for field, name in (("pod_affinity", "podAffinity"), ("pod_anti_affinity", "podAntiAffinity")):
        terms = [
            {"labelSelector": {"matchLabels": t["match_labels"]}, "topologyKey": t["topology_key"]}
            for t in task.get(field) or ()
        ]
        if terms:
            rules[name] = {REQUIRED: terms}
    return rules
