"""The schedulers that the pods of each native PodGroup name."""

from kai_py.api.pod_phases import is_finished
from kai_py.api.records.core import Pod
from kai_py.snapshot.dependencies import Dependencies, GroupSchedulersKey, group_schedulers_key
from kai_py.snapshot.tables.pod_table import PodTable, Uids


class GroupSchedulers(PodTable):
    """How many pods of every group name which scheduler; pods that ended do not count.

    kube-scheduler refuses a group whose pods name several schedulers, and so must every other
    scheduler: each of them would wait for pods that the other never places. Source: KEP-4671.
    """

    def __init__(self, dependencies: Dependencies) -> None:
        """Start empty; ``dependencies``: of pods on the schedulers of their group."""
        self._dependencies = dependencies
        self._counts: dict[GroupSchedulersKey, dict[str, int]] = {}
        self._pods: dict[str, tuple[GroupSchedulersKey, str]] = {}

    def of(self, key: GroupSchedulersKey) -> tuple[str, ...]:
        """The schedulers that pods of the group name, in order."""
        return tuple(sorted(self._counts.get(key, {})))

    def of_group(self, namespace: str, group: str) -> tuple[str, ...]:
        """The schedulers that pods of a PodGroup name, in order; none if it has no pods."""
        return self.of(("schedulers", namespace, group))

    def observe(self, pod: Pod) -> Uids:
        """Count a pod; the pods of a group in which other schedulers are named now change."""
        key = None if is_finished(pod) else group_schedulers_key(pod)
        named = None if key is None else (key, pod.spec.scheduler_name)
        before = self._pods.get(pod.metadata.uid)
        if before == named:
            return ()
        changed = self._uncount(pod.metadata.uid)
        if named is not None:
            self._pods[pod.metadata.uid] = named
            changed = (*changed, *self._count(*named, 1))
        return self._dependencies.dependents(changed)

    def remove(self, pod: Pod) -> Uids:
        """Do not count the pod; others change if its scheduler is not named in the group now."""
        return self._dependencies.dependents(self._uncount(pod.metadata.uid))

    def _uncount(self, uid: str) -> tuple[GroupSchedulersKey, ...]:
        named = self._pods.pop(uid, None)
        return () if named is None else self._count(*named, -1)

    def _count(
        self, key: GroupSchedulersKey, scheduler: str, change: int
    ) -> tuple[GroupSchedulersKey, ...]:
        schedulers = self._counts.setdefault(key, {})
        before = schedulers.get(scheduler, 0)
        schedulers[scheduler] = before + change
        if schedulers[scheduler] == 0:
            del schedulers[scheduler]
        if not schedulers:
            del self._counts[key]
        return (key,) if 0 in (before, before + change) else ()
