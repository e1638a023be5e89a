"""The live view groups pods as the planner does."""

import json
from types import SimpleNamespace

from kai_py.observe.live.membership import MirroredOwners
from kai_py.watch.kinds import JOBS, KAI_POD_GROUPS, NAMESPACES, PODS
from tests.dialects.feeding import Cluster, pod
from tests.dialects.kai.objects import QUEUE, job, member, pod_group, with_pods


def record(kind, document):
    meta = {"namespace": "default", "uid": f"uid-{document['kind']}-{document['metadata']['name']}"}
    document = {**document, "metadata": {**meta, **document["metadata"]}}
    return kind.at().decode(json.dumps(document).encode())


class KnownObjects:
    """A mirror of these kinds with these objects."""

    def __init__(self, kinds, *documents):
        self._objects = {kind: {} for kind in kinds}
        for document in documents:
            kind = next(each for each in kinds if each.name == document["kind"])
            found = record(kind, document)
            self._objects[kind][found.metadata.namespace, found.metadata.name] = found

    def served(self, kind):
        return SimpleNamespace() if kind in self._objects else None

    def objects(self, kind):
        return self._objects[kind]


def test_pods_are_grouped_as_the_planner_groups_them():
    group, owner = pod_group("g", minMember=2), job("train", 3, {"kai.scheduler/queue": "q"})
    pods = [member("a", "g"), *with_pods(owner, 1)[1:], pod("alone")]
    cluster = Cluster(QUEUE, group, owner, pods)
    owners = MirroredOwners(KnownObjects((JOBS, KAI_POD_GROUPS, NAMESPACES), group, owner))
    planned = {
        each.pod.name: (gang.key, gang.queue, gang.tree)
        for gang in cluster.snapshot().gangs.values()
        for each in gang.members
    }
    for document in pods:
        found = owners.gang_of(record(PODS, document))
        assert (found.key, found.queue, found.tree) == planned[document["metadata"]["name"]]


def test_kinds_that_are_not_mirrored_are_not_there():
    owners = MirroredOwners(KnownObjects((JOBS, NAMESPACES)))
    found = owners.gang_of(record(PODS, member("a", "g")))
    assert "does not exist (yet)" in found.problem
