"""Steps of a suggestion, carried out on a simulated cluster as on a real one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.errors import RequestError
from kai_py.embedded.patches.json import apply_merge_patch
from kai_py.observe.suggestion import SuggestionStep, Verb
from kai_py.policy.fit import UNSCHEDULABLE
from kai_py.simulate.changes import AddNodes, AddObjects, ChangeError
from kai_py.simulate.cluster import SimulatedCluster

DELETE_WITH_DEPENDENTS = DeleteOptions(policy="Background", grace_seconds=0)


@dataclass(frozen=True, slots=True)
class ApplySteps:
    """A change made of steps, in order; all deletions come first."""

    steps: Sequence[SuggestionStep]

    def apply(self, cluster: SimulatedCluster) -> None:
        """Carry the steps out; raises ChangeError."""
        api = cluster.embedded.api
        try:
            # Dependents are listed after what they depend on: delete them in the opposite order.
            for step in reversed(self.steps):
                if step.verb in (Verb.REPLACE, Verb.DELETE):
                    _delete(api, step)
            cluster.clock.run_due()
            for step in self.steps:
                _apply_step(cluster, step)
        except (RequestError, KeyError) as error:
            raise ChangeError(str(error)) from None


def _delete(api: ApiServer, step: SuggestionStep) -> None:
    """Delete an object; what protects it while it is in use ends with its users."""
    resource = api.registry.of_kind(step.api_version, step.kind)
    if api.stored(resource, step.name, step.namespace)["metadata"].get("finalizers"):
        api.edit(resource, step.name, step.namespace, _without_finalizers)
    delete(api, resource, step.name, step.namespace, DELETE_WITH_DEPENDENTS)


def _apply_step(cluster: SimulatedCluster, step: SuggestionStep) -> None:
    api = cluster.embedded.api
    if step.verb is Verb.ADD_NODES:
        AddNodes(step.name, step.count).apply(cluster)
    elif step.verb is Verb.PATCH:
        resource = api.registry.of_kind(step.api_version, step.kind)
        api.edit(
            resource,
            step.name,
            step.namespace,
            lambda present: _without_cordon(apply_merge_patch(present, step.patch)),
        )
    elif step.document is not None:
        AddObjects([step.document]).apply(cluster)


def _without_finalizers(present: dict[str, Any]) -> dict[str, Any]:
    return {**present, "metadata": {**present["metadata"], "finalizers": []}}


def _without_cordon(changed: dict[str, Any]) -> dict[str, Any]:
    """As Kubernetes' node controller does: a node that is not cordoned lacks the taint for it."""
    spec = changed.get("spec") or {}
    if changed["kind"] != "Node" or spec.get("unschedulable") or not spec.get("taints"):
        return changed
    taints = [each for each in spec["taints"] if each["key"] != UNSCHEDULABLE.key]
    return {**changed, "spec": {**spec, "taints": taints}}


def combine_steps(
    earlier: Sequence[SuggestionStep], later: Sequence[SuggestionStep]
) -> tuple[SuggestionStep, ...]:
    """All steps, without the earlier ones to objects that a later one replaces."""
    replaced = {_object_key(step) for step in later if step.verb is Verb.REPLACE}
    return (*(step for step in earlier if _object_key(step) not in replaced), *later)


def _object_key(step: SuggestionStep) -> tuple[str, str, str]:
    return step.kind, step.namespace, step.name
