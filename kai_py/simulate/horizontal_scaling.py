"""Replicas of workloads in files, as a HorizontalPodAutoscaler bounds them before it has metrics.

Source: k8s.io/kubernetes pkg/controller/podautoscaler (``reconcileAutoscaler``): a target without
replicas is not scaled.
"""

from kai_py.simulate.object_files import ObjectKey
from kai_py.simulate.objects import Document
from kai_py.simulate.written_objects import with_spec

AUTOSCALER = ("autoscaling", "HorizontalPodAutoscaler")


def bound_replicas(found: dict[ObjectKey, Document], workloads: list[ObjectKey]) -> None:
    """Set the replicas of those of ``workloads`` that an autoscaler names, within its bounds.

    What cannot be read is left as it is.
    """
    targets = set(workloads)
    for key, document in list(found.items()):
        spec = document.get("spec") if key[:2] == AUTOSCALER else None
        if not isinstance(spec, dict):
            continue
        target = _target(spec, key.namespace)
        if target is None or target not in targets:
            continue
        workload, least, most = found[target], spec.get("minReplicas"), spec.get("maxReplicas")
        given = workload.get("spec")
        replicas = given.get("replicas") if isinstance(given, dict) else 0
        replicas, least = 1 if replicas is None else replicas, 1 if least is None else least
        if type(replicas) is type(least) is type(most) is int and replicas:
            found[target] = with_spec(workload, {"replicas": min(max(replicas, least), most)})


def _target(spec: Document, namespace: str) -> ObjectKey | None:
    named = spec.get("scaleTargetRef")
    if not isinstance(named, dict):
        return None
    version, kind, name = (named.get(each) for each in ("apiVersion", "kind", "name"))
    if not (isinstance(version, str) and isinstance(kind, str) and isinstance(name, str)):
        return None
    return ObjectKey(version.rpartition("/")[0], kind, namespace, name)
