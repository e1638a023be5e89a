"""Spot nodes that are interrupted: announced, taken away with what runs on them, and replaced.

Times between interruptions of a node, and until another comes in its place, are exponentially
distributed, and follow from the seed of the scenario. Pods that are asked to save their work answer
after ``ANSWER_SECONDS``.
"""

import random
from collections.abc import Callable, Iterable
from functools import partial

from kai_py.api.queue import CHECKPOINT_BY_KEY, CHECKPOINTED_KEY
from kai_py.api.references import PodRef
from kai_py.api.times import HOUR
from kai_py.embedded.clock import SIMULATION_START
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.documents import Json, is_finished, name_of, namespace_of
from kai_py.embedded.resources import NODES, PODS
from kai_py.plan.observations import CheckpointRequest
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.scenario import NodeGroup, Scenario
from kai_py.simulate.workloads import Manifest, node_manifests

ANSWER_SECONDS = 20.0
NOTICE = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}


class Interruptions:
    """Interrupts nodes; ``on_lost`` is called with the uids of the pods that are lost with one."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        scenario: Scenario,
        on_lost: Callable[[Iterable[str]], None],
    ) -> None:
        """Nothing is scheduled yet."""
        self._cluster, self._scenario, self._on_lost = cluster, scenario, on_lost
        self._away_since: dict[str, tuple[str, float]] = {}
        self._away: dict[str, float] = {}

    def schedule(self) -> None:
        """Schedule the first interruption of each node."""
        for kind in self._scenario.nodes:
            for manifest in node_manifests(kind) if kind.interruptions_per_hour else ():
                name = manifest["metadata"]["name"]
                chance = random.Random(f"{self._scenario.seed}/interruptions/{name}")
                self._schedule_next(kind, manifest, chance)

    def answer(self, requests: Iterable[CheckpointRequest]) -> None:
        """Let pods that were asked save their work."""
        for request in requests:
            for pod in request.pods:
                self._cluster.clock.call_later(ANSWER_SECONDS, partial(self._answer, pod))

    def away_hours(self, end: float) -> dict[str, float]:
        """By group, the hours in which nodes were away until ``end``, seconds since the epoch."""
        total = dict(self._away)
        for kind, since in self._away_since.values():
            total[kind] = total.get(kind, 0.0) + max(end - since, 0.0)
        return {kind: seconds / HOUR for kind, seconds in total.items()}

    def _schedule_next(self, kind: NodeGroup, manifest: Manifest, chance: random.Random) -> None:
        seconds = chance.expovariate(kind.interruptions_per_hour) * HOUR
        if self._elapsed() + seconds < self._scenario.hours * HOUR:
            self._cluster.clock.call_later(seconds, partial(self._announce, kind, manifest, chance))

    def _announce(self, kind: NodeGroup, manifest: Manifest, chance: random.Random) -> None:
        def tainted(node: Json) -> Json:
            return {**node, "spec": {**node.get("spec", {}), "taints": [NOTICE]}}

        self._cluster.embedded.api.edit(NODES, manifest["metadata"]["name"], "", tainted)
        take = partial(self._take, kind, manifest, chance)
        self._cluster.clock.call_later(kind.notice_seconds, take)

    def _take(self, kind: NodeGroup, manifest: Manifest, chance: random.Random) -> None:
        api, name = self._cluster.embedded.api, manifest["metadata"]["name"]
        lost = [
            pod
            for pod in api.list(PODS)
            if pod["spec"].get("nodeName") == name and not is_finished(pod)
        ]
        self._on_lost([pod["metadata"]["uid"] for pod in lost])
        for pod in lost:
            marked = api.patch_status(PODS, pod, {"conditions": [DISRUPTED]})
            options = DeleteOptions(grace_seconds=0)
            delete(api, PODS, name_of(marked), namespace_of(marked), options)
        delete(api, NODES, name, "", DeleteOptions())
        self._away_since[name] = kind.name, self._cluster.clock.now()
        away = chance.expovariate(1 / (kind.away_minutes * 60)) if kind.away_minutes else 0.0
        bring = partial(self._bring, kind, manifest, chance)
        self._cluster.clock.call_later(away, bring)

    def _bring(self, kind: NodeGroup, manifest: Manifest, chance: random.Random) -> None:
        name = manifest["metadata"]["name"]
        _, since = self._away_since.pop(name)
        away = self._cluster.clock.now() - since
        self._away[kind.name] = self._away.get(kind.name, 0.0) + away
        self._cluster.embedded.create(manifest)
        self._schedule_next(kind, manifest, chance)

    def _answer(self, pod: PodRef) -> None:
        api = self._cluster.embedded.api
        known = api.find(PODS, pod.name, pod.namespace)
        by = known and (known["metadata"].get("annotations") or {}).get(CHECKPOINT_BY_KEY)
        if not known or not by or known["metadata"]["uid"] != pod.uid:
            return

        def answered(present: Json) -> Json:
            meta = present["metadata"]
            annotations = {**meta["annotations"], CHECKPOINTED_KEY: by}
            return {**present, "metadata": {**meta, "annotations": annotations}}

        api.edit(PODS, pod.name, pod.namespace, answered)

    def _elapsed(self) -> float:
        return self._cluster.clock.now() - SIMULATION_START
