"""Does a pod that was bound to a node fit there?

As a real kubelet, the fake one does not trust schedulers: a pod whose requests, together with
those of the pods already running on the node, exceed what the node has is rejected (`OutOfcpu`,
`OutOfnvidia.com/gpu`, ...) and ends as failed. Resources the node does not report are not
checked. Requests of a pod: the larger of its containers' sum and its largest init container, each
with the sidecars, then pod-level requests in their place, plus overhead.
"""

import itertools
from collections import defaultdict
from collections.abc import Mapping

from kai_py.api.quantity import parse_quantity
from tests.cluster.fake_kubelet.pods import Container, Pod, Spec

Amounts = dict[str, int]


class Admission:
    """The capacity of each node and the pods that use it."""

    def __init__(self, allocatable: Mapping[str, Mapping[str, str]]) -> None:
        self._allocatable = {node: _amounts(given) for node, given in allocatable.items()}
        self._requests: defaultdict[str, dict[str, Amounts]] = defaultdict(dict)
        self._gpus: defaultdict[str, dict[str, tuple[int, ...]]] = defaultdict(dict)

    def shortage(self, pod: Pod) -> str:
        """Return the first resource that is too little for the pod, "" when it fits."""
        others = [
            requests
            for uid, requests in self._requests[pod.spec.node_name].items()
            if uid != pod.metadata.uid
        ]
        wanted = pod_requests(pod.spec)
        for resource, allocatable in self._allocatable[pod.spec.node_name].items():
            taken = sum(requests.get(resource, 0) for requests in others)
            if wanted.get(resource, 0) > allocatable - taken and wanted.get(resource, 0) > 0:
                return resource
        return ""

    def occupy(self, pod: Pod) -> None:
        """Count the pod's requests on its node."""
        taken = self._requests[pod.spec.node_name]
        if pod.metadata.uid not in taken:
            requests = taken[pod.metadata.uid] = pod_requests(pod.spec)
            count = requests.get("nvidia.com/gpu", 0) // 10**9
            given = self._gpus[pod.spec.node_name]
            in_use = {index for indexes in given.values() for index in indexes}
            free = (index for index in itertools.count() if index not in in_use)
            given[pod.metadata.uid] = tuple(itertools.islice(free, count))

    def gpus(self, pod: Pod) -> tuple[str, ...]:
        """UUIDs of the GPUs that the device plugin gave to a pod: the first that were free."""
        node = pod.spec.node_name
        return tuple(f"GPU-{node}-{i}" for i in self._gpus[node].get(pod.metadata.uid, ()))

    def release(self, pod: Pod) -> None:
        """Count them no more."""
        self._requests[pod.spec.node_name].pop(pod.metadata.uid, None)
        self._gpus[pod.spec.node_name].pop(pod.metadata.uid, None)


def pod_requests(spec: Spec) -> Amounts:
    """Return what the pod needs of each resource, in billionths, itself as one of `pods`."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            sidecars = _sum(sidecars, _requests(container))
        else:
            peak = _larger(peak, _sum(sidecars, _requests(container)))
    steady = sidecars
    for container in spec.containers:
        steady = _sum(steady, _requests(container))
    needed = _larger(peak, steady) | _amounts(spec.resources.requests)
    return _sum(_sum(needed, _amounts(spec.overhead)), _amounts({"pods": "1"}))


def _requests(container: Container) -> Amounts:
    return _amounts(container.resources.requests)


def _amounts(given: Mapping[str, str]) -> Amounts:
    return {resource: parse_quantity(text).nano for resource, text in given.items()}


def _sum(left: Amounts, right: Amounts) -> Amounts:
    return left | {key: left.get(key, 0) + amount for key, amount in right.items()}


def _larger(left: Amounts, right: Amounts) -> Amounts:
    return left | {key: max(left.get(key, 0), amount) for key, amount in right.items()}
