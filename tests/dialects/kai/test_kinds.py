"""Class and preemptibility of a workload by its kind: KAI's, and an operator's defaults."""

import pytest

from kai_py.api.records.core import ObjectMeta, OwnerReference, PartialObjectMetadata, Pod
from kai_py.dialects.kai.priority import KindDefaults, class_of, defaults_of
from kai_py.grouping.owner_chain import GroupKind, OwnerChain, OwnerLink
from tests.dialects.feeding import Cluster, pod
from tests.dialects.kai.objects import KAI
from tests.dialects.kai.test_workloads import QUEUE


def chain(*kinds):
    """The owners of a pod, the nearest first."""
    links = []
    for name in kinds:
        kind, _, group = name.partition(".")
        found = PartialObjectMetadata(metadata=ObjectMeta(name=kind.lower()))
        links.append(OwnerLink(OwnerReference(), found, GroupKind(group, kind)))
    return OwnerChain(Pod(), (), tuple(links))


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((), "train"),
        (("ReplicaSet.apps", "Deployment.apps"), "inference"),
        (("StatefulSet.apps", "Notebook.kubeflow.org"), "build"),
        (("Service.serving.knative.dev",), "inference"),
        (("Service.example.com",), "train"),
        # KAI does not know these kinds, so what they serve is training work there.
        (("ReplicaSet.apps", "Deployment.apps", "InferenceService.serving.kserve.io"), "train"),
        (("RoleInstance.workloads.x-k8s.io", "RoleBasedGroup.workloads.x-k8s.io"), "train"),
        (("RoleSet.orchestration.aibrix.ai", "StormService.orchestration.aibrix.ai"), "train"),
        # It looks below these.
        (("ReplicaSet.apps", "Deployment.apps", "Workflow.argoproj.io"), "inference"),
        (("Workflow.argoproj.io",), "train"),
    ],
)
def test_the_class_is_that_of_the_topmost_owner_that_kai_asks(kinds, expected):
    assert class_of(chain(*kinds)) == expected


DEFAULTS = (
    KindDefaults("Deployment", "other.io", "a"),
    KindDefaults("Deployment", "", "b"),
    KindDefaults("ReplicaSet", "apps", "c"),
    KindDefaults("ReplicaSet", "", "d"),
    KindDefaults("Workflow", "argoproj.io", "e"),
)


def test_defaults_go_by_kind_the_nearest_owner_first():
    found = defaults_of(chain("ReplicaSet.apps", "Deployment.apps"), DEFAULTS)
    assert [each.priority_class for each in found] == ["c", "b"]
    found = defaults_of(chain("ReplicaSet.apps", "Workflow.argoproj.io"), DEFAULTS)
    assert [each.priority_class for each in found] == ["e", "c"]


def stateful(**more):
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}}
    one = pod("p", owner=owner, labels={KAI: "q"}, **more)
    defaults = {
        "kind": "StatefulSet",
        "priorityClass": "build",
        "preemptibility": "preemptible",
    }
    cluster = Cluster(QUEUE, owner, one, kai={"kindDefaults": [defaults]})
    [gang] = cluster.snapshot().gangs.values()
    return gang.priority, gang.preemptible


def test_the_operators_defaults_count_where_the_workload_says_nothing():
    assert stateful() == (100, True)
    assert stateful(priorityClassName="inference") == (125, True)
