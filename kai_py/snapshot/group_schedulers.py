"""Which schedulers do the pods of one native group name?

kube-scheduler refuses a group whose pods name several schedulers, and so must everybody else:
each of them would wait for pods that the other never places. Pods that ended do not count.

Source: KEP-4671.
"""

from kai_py.api.records.core import Pod
from kai_py.snapshot.assumptions import FINISHED_PHASES

GroupSchedulersKey = tuple[str, ...]


def group_schedulers_key(pod: Pod) -> GroupSchedulersKey | None:
    """What stands for the group of ``pod`` among all, None if it names none."""
    namespace, group, workload = (
        pod.metadata.namespace,
        pod.spec.scheduling_group,
        pod.spec.workload_ref,
    )
    if group is not None:
        return "schedulers", namespace, group.pod_group_name
    if workload is not None:
        parts = (workload.name, workload.pod_group, workload.pod_group_replica_key)
        return "schedulers", namespace, *parts
    return None


class GroupSchedulers:
    """How many pods of every group name which scheduler."""

    def __init__(self) -> None:
        """Start empty."""
        self._counts: dict[GroupSchedulersKey, dict[str, int]] = {}
        self._pods: dict[str, tuple[GroupSchedulersKey, str]] = {}

    def of(self, key: GroupSchedulersKey) -> tuple[str, ...]:
        """The schedulers that pods of the group name, in order."""
        return tuple(sorted(self._counts.get(key, {})))

    def of_group(self, namespace: str, group: str) -> tuple[str, ...]:
        """The schedulers that pods of a PodGroup name, in order; none if it has no pods."""
        return self.of(("schedulers", namespace, group))

    def set(self, pod: Pod) -> tuple[GroupSchedulersKey, ...]:
        """Take in a pod; gives the groups in which other schedulers are named now."""
        key = None if pod.status.phase in FINISHED_PHASES else group_schedulers_key(pod)
        named = None if key is None else (key, pod.spec.scheduler_name)
        if self._pods.get(pod.metadata.uid) == named:
            return ()
        changed = self.remove(pod.metadata.uid)
        if named is None:
            return changed
        self._pods[pod.metadata.uid] = named
        return (*changed, *self._count(*named, 1))

    def remove(self, uid: str) -> tuple[GroupSchedulersKey, ...]:
        """The pod is gone; gives its group if one scheduler less is named there now."""
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
