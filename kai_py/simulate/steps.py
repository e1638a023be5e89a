"""Steps of a suggestion, carried out on a simulated cluster as they would be on the real one."""

from collections.abc import Sequence
from dataclasses import dataclass

from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.errors import ApiError
from kai_py.embedded.patches.merge import apply_merge_patch
from kai_py.observe.suggestion import Step, Verb
from kai_py.simulate.changes import AddNodes, AddObjects, ChangeError
from kai_py.simulate.cluster import SimulatedCluster

WITH_ALL_IT_OWNS = DeleteOptions(policy="Background", grace_seconds=0)


@dataclass(frozen=True, slots=True)
class TakeSteps:
    """A change made of steps, in their order; what is replaced is deleted before all of them."""

    steps: Sequence[Step]

    def apply(self, cluster: SimulatedCluster) -> None:
        """Carry the steps out; raises ChangeError."""
        api = cluster.embedded.api
        try:
            for step in reversed(self.steps):
                if step.verb in (Verb.REPLACE, Verb.DELETE):
                    _delete(api, step)
            cluster.clock.run_due()
            for step in self.steps:
                _take(cluster, step)
        except (ApiError, KeyError) as error:
            raise ChangeError(str(error)) from None


def _delete(api: ApiServer, step: Step) -> None:
    resource = api.registry.of_kind(step.api_version, step.kind)
    delete(api, resource, step.name, step.namespace, WITH_ALL_IT_OWNS)


def _take(cluster: SimulatedCluster, step: Step) -> None:
    api = cluster.embedded.api
    if step.verb is Verb.ADD_NODES:
        AddNodes(step.name, step.count).apply(cluster)
    elif step.verb is Verb.PATCH:
        resource = api.registry.of_kind(step.api_version, step.kind)
        api.edit(
            resource,
            step.name,
            step.namespace,
            lambda present: apply_merge_patch(present, step.patch),
        )
    elif step.document is not None:
        AddObjects([step.document]).apply(cluster)


def one_after_the_other(earlier: Sequence[Step], later: Sequence[Step]) -> tuple[Step, ...]:
    """All steps, without the earlier ones to objects that a later one makes as new."""
    made = {_object(step) for step in later if step.verb is Verb.REPLACE}
    return (*(step for step in earlier if _object(step) not in made), *later)


def _object(step: Step) -> tuple[str, str, str]:
    return step.kind, step.namespace, step.name
