"""A cluster of manifests, counted pod by pod: what stands where, and what may stand beside it.

It judges plans, so it knows the rules of Kubernetes and shares no code with the planner.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations

from tests.support.cluster.api import Document

GPU, HOST, RACK = "nvidia.com/gpu", "kubernetes.io/hostname", "example.com/rack"
QUEUE, SIZE = "scheduling.kai.io/queue-name", "scheduling.kai.io/min-available"
MODEL = 'device.attributes["gpu.nvidia.com"].model == '
UNITS = {"m": 1e-3, "Mi": 2.0**20, "Gi": 2.0**30}


def amounts(found: Document) -> Counter[str]:
    """Quantities by resource, in processors, bytes and devices."""
    split = {
        name: (text.rstrip("mMGi"), text.lstrip("0123456789.")) for name, text in found.items()
    }
    return Counter({n: float(number) * UNITS.get(unit, 1) for n, (number, unit) in split.items()})


def requests(pod: Document) -> Counter[str]:
    """What a pod takes of its node: containers and sidecars, or the largest step of its start."""
    own = [amounts(c.get("resources", {}).get("requests", {})) for c in pod["spec"]["containers"]]
    main, beside, start = sum(own, Counter[str]()), Counter[str](), Counter[str]()
    for container in pod["spec"].get("initContainers", ()):
        start |= (step := amounts(container["resources"]["requests"]) + beside)
        beside = step if container.get("restartPolicy") == "Always" else beside
    return Counter(pods=1.0) + ((main + beside) | start)


def named(pod: Document) -> str:
    return pod["metadata"]["name"]


def chosen(allocation: Document) -> tuple[str, ...]:
    """The devices of an allocation."""
    return tuple(f"{each['pool']}/{each['device']}" for each in allocation["devices"]["results"])


class ClusterModel:
    """``at``: the nodes of pods that are on one; ``devices``: those of claims that have some."""

    def __init__(self, documents: list[Document]) -> None:
        self.of = defaultdict[str, dict[str, Document]](dict)
        for each in documents:
            self.of[each["kind"]][named(each)] = each
        self.nodes, self.pods, self.queues = (self.of[k] for k in ("Node", "Pod", "Queue"))
        self.models = {
            f"{name}/{device['name']}": device["attributes"]["model"]["string"]
            for name, each in self.of["ResourceSlice"].items()
            for device in each["spec"]["devices"]
        }
        places = {name: pod["spec"].get("nodeName") for name, pod in self.pods.items()}
        self.at = {name: node for name, node in places.items() if node in self.nodes}
        allocations = {
            name: claim.get("status", {}).get("allocation")
            for name, claim in self.of["ResourceClaim"].items()
        }
        self.devices = {name: chosen(each) for name, each in allocations.items() if each}

    def gang_of(self, pod: Document) -> str:
        return pod["metadata"].get("ownerReferences", [{"name": ""}])[0]["name"]

    def queues_of(self, pod: Document) -> list[str]:
        """The queue of the pod and those above it."""
        name, found = pod["metadata"]["labels"].get(QUEUE), []
        while name in self.queues and name not in found:
            found.append(name)
            name = self.queues[name]["spec"].get("parent")
        return found

    def claims_of(self, pod: Document) -> list[str]:
        """Claims of the pod that exist."""
        used = (f"{named(pod)}-{each['name']}" for each in pod["spec"].get("resourceClaims", ()))
        return [each for each in used if each in self.of["ResourceClaim"]]

    def request_of(self, claim: str) -> Document:
        return self.of["ResourceClaim"][claim]["spec"]["devices"]["requests"][0]["exactly"]

    def gpus(self, pod: Document) -> float:
        """What the pod costs its queue."""
        return requests(pod)[GPU] + sum(self.request_of(c)["count"] for c in self.claims_of(pod))

    def refused(self, pod: Document, node: str) -> str:
        """The first required rule that keeps the pod, which is on no node, off this one."""
        spec, its, labels = pod["spec"], self.nodes[node], self.nodes[node]["metadata"]["labels"]
        taints = () if spec.get("tolerations") else its["spec"].get("taints", ())
        if any(each["effect"] == "NoSchedule" for each in taints):
            return "taint"
        if its["spec"].get("unschedulable") or spec.get("schedulingGates"):
            return "cordoned node or gated pod"
        if its["status"]["conditions"][0]["status"] != "True":
            return "not ready"
        if not spec.get("nodeSelector", {}).items() <= labels.items():
            return "node selector"
        here = [self.pods[name] for name, other in self.at.items() if other == node]
        total = sum(map(requests, here), requests(pod))
        if total - amounts(its["status"]["allocatable"]):
            return f"capacity: {total}"
        if any(_apart(pod, each) or _apart(each, pod) for each in here):
            return "anti-affinity"
        return "" if all(self._spreads(pod, node, r) for r in _spreads(pod)) else "spread"

    def _spreads(self, pod: Document, node: str, rule: Document) -> bool:
        """Whether the pod may be on the node beside others that the rule selects and that stay."""
        all_labels = {name: each["metadata"]["labels"] for name, each in self.nodes.items()}
        wanted, only = rule["labelSelector"]["matchLabels"], pod["spec"].get("nodeSelector", {})
        domains = {
            name: labels[rule["topologyKey"]]
            for name, labels in all_labels.items()
            if only.items() <= labels.items()
        }
        found = Counter(dict.fromkeys(domains.values(), 0))
        for name, at in self.at.items():
            meta = self.pods[name]["metadata"]
            stays = "deletionTimestamp" not in meta and at in domains
            if stays and wanted.items() <= meta["labels"].items():
                found[domains[at]] += 1
        return found[domains[node]] + 1 - min(found.values()) <= rule["maxSkew"]

    def wrong_devices(self, claim: str, node: str, devices: tuple[str, ...]) -> str:
        """Why the claim may not have these devices; "": it may."""
        request = self.request_of(claim)
        if len({*devices}) != request["count"] or len(devices) != request["count"]:
            return "number of devices"
        if any(each not in self.models or each.split("/")[0] != node for each in devices):
            return "device of no or another node"
        if {*devices} & {each for held in self.devices.values() for each in held}:
            return "device given twice"
        for each in request.get("selectors", ()):
            model = each["cel"]["expression"].removeprefix(MODEL).strip('"')
            if {self.models[device] for device in devices} != {model}:
                return "device not selected"
        return ""

    def ways(self, pod: Document, nodes: list[str]) -> Iterator[str]:
        """Start the pod in each way in which it fits, until the next way is asked for."""
        for node in nodes:
            if not self.refused(pod, node):
                self.at[named(pod)] = node
                yield from self._with_claims(node, self.claims_of(pod))
                del self.at[named(pod)]

    def _with_claims(self, node: str, claims: list[str]) -> Iterator[str]:
        if not claims:
            yield node
            return
        every = [each for each in self.models if each.split("/")[0] == node]
        for devices in combinations(every, self.request_of(claims[0])["count"]):
            if not self.wrong_devices(claims[0], node, devices):
                self.devices[claims[0]] = devices
                yield from self._with_claims(node, claims[1:])
                del self.devices[claims[0]]


def _apart(pod: Document, other: Document) -> bool:
    """Whether the pod's anti-affinity keeps ``other`` off its node."""
    rule = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
    terms = rule.get("requiredDuringSchedulingIgnoredDuringExecution", ())
    labels = other["metadata"]["labels"].items()
    return any(each["labelSelector"]["matchLabels"].items() <= labels for each in terms)


def _spreads(pod: Document) -> list[Document]:
    return pod["spec"].get("topologySpreadConstraints", [])
