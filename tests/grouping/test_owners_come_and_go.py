"""Owners that are late, refused, deleted or changed, and what that does to their pods' gangs."""

from dataclasses import dataclass, field

import msgspec

from kai_py.api.records.core import ObjectMeta, OwnerReference, PartialObjectMetadata, Pod, PodSpec
from kai_py.api.records.unstructured import unstructured
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.grouping.annotations import POD_GROUP_ANNOTATION
from kai_py.grouping.gang import GangSpec, Owner, Subgroup
from kai_py.grouping.group_sources import GroupSource
from kai_py.grouping.grouper import Grouper
from kai_py.grouping.owner_chain import GroupKind
from kai_py.grouping.rule_table import RuleTable, shipped_rules
from kai_py.snapshot.builder import SnapshotBuilder

LWS = GroupKind("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
COLLECTION = "leaderworkersets.leaderworkerset.x-k8s.io"
QUEUE = "scheduling.kai.io/queue-name"


def lws(size=2, version="1", **spec):
    whole = {
        "apiVersion": f"{LWS.group}/v1",
        "kind": LWS.kind,
        "metadata": {
            "name": "llm",
            "namespace": "default",
            "uid": "lws",
            "resourceVersion": version,
            "annotations": {QUEUE: "team"},
        },
        "spec": {"leaderWorkerTemplate": {"size": size}} | spec,
    }
    return unstructured(whole, RuleTable(shipped_rules()).paths(LWS))


def pod(name, owner=LWS, uid="lws", **meta) -> Pod:
    reference = OwnerReference(
        api_version=f"{owner.group}/v1", kind=owner.kind, name="llm", uid=uid, controller=True
    )
    labels = {"leaderworkerset.sigs.k8s.io/group-index": "0"}
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"pod-{name}",
            labels=labels,
            owner_references=(reference,),
            **meta,
        ),
        spec=PodSpec(scheduler_name="kai-scheduler"),
    )


@dataclass
class World:
    followed: list = field(default_factory=list)
    grouper: Grouper = field(default_factory=Grouper)

    def __post_init__(self):
        self.asked = 0
        self.builder = SnapshotBuilder(
            self.identify, ClusterDevices(), lambda spec: spec, watch_kind=self.followed.append
        )

    def identify(self, each, owners) -> GangSpec:
        self.asked += 1
        return self.grouper.identify(each, owners)

    @property
    def gangs(self):
        return self.builder.snapshot(0.0).gangs


def test_a_kind_is_asked_for_once_and_its_pods_wait_until_it_is_known():
    world = World()
    world.builder.apply("pods", None, pod("a"))
    world.builder.apply("pods", None, pod("b"))
    assert world.followed == [LWS]
    waiting = world.gangs["default/LeaderWorkerSet/llm"]
    assert "LeaderWorkerSet default/llm, which owns pod a, was not found" in waiting.problem
    world.builder.set_owner_kind(LWS, readable=True)
    world.builder.apply(COLLECTION, None, lws())
    (gang,) = world.gangs.values()
    assert (gang.key, gang.queue, gang.problem) == ("default/LeaderWorkerSet/llm/0", "team", "")
    assert len(gang.members) == 2


def test_where_a_kind_is_refused_the_walk_ends():
    world = World()
    world.builder.apply("pods", None, pod("a"))
    world.builder.set_owner_kind(LWS, readable=False)
    assert list(world.gangs) == ["default/Pod/a"]
    assert world.gangs["default/Pod/a"].problem == ""


def test_a_deleted_owner_is_remembered_until_its_pods_are_gone():
    world = World()
    world.builder.apply(COLLECTION, None, lws())
    world.builder.apply("pods", None, pod("a"))
    before = world.gangs
    world.builder.apply(COLLECTION, lws(), None)
    assert world.gangs == before
    world.builder.apply("pods", pod("a"), pod("a", annotations={"touched": "yes"}))
    assert list(world.gangs) == ["default/LeaderWorkerSet/llm/0"]
    world.builder.apply("pods", pod("a"), None)
    assert world.gangs == {}
    world.builder.apply("pods", None, pod("late"))
    assert "was not found" in world.gangs["default/LeaderWorkerSet/llm"].problem


def test_an_owner_that_comes_back_decides_again():
    world = World()
    world.builder.apply(COLLECTION, None, lws())
    world.builder.apply("pods", None, pod("a"))
    world.builder.apply(COLLECTION, lws(), None)
    world.builder.apply(COLLECTION, None, lws(size=5, version="2"))
    assert world.gangs["default/LeaderWorkerSet/llm/0"].tree.min_pods() == 5


def test_pods_are_derived_again_when_an_owner_says_something_else_only():
    world = World()
    world.builder.apply(COLLECTION, None, lws())
    world.builder.apply("pods", None, pod("a"))
    asked = world.asked
    world.builder.apply(COLLECTION, lws(), lws(version="2", replicas=7))
    assert world.asked == asked
    world.builder.apply(COLLECTION, lws(version="2"), lws(size=4, version="3"))
    assert world.asked == asked + 1
    assert world.gangs["default/LeaderWorkerSet/llm/0"].tree.min_pods() == 4


def test_what_an_owner_says_is_worked_out_once(monkeypatch):
    world = World()
    drawn = []
    framework = "kai_py.grouping.grouper._gang_template"
    original = __import__("kai_py.grouping.grouper", fromlist=["_gang_template"])._gang_template
    monkeypatch.setattr(framework, lambda *args: drawn.append(1) or original(*args))
    world.builder.apply(COLLECTION, None, lws(size=100))
    for number in range(100):
        world.builder.apply("pods", None, pod(f"p{number}"))
    assert len(drawn) == 1


def test_an_owner_of_a_broken_spec_holds_up_no_other():
    world = World()
    world.builder.apply(COLLECTION, None, lws(size="huge"))
    world.builder.apply("pods", None, pod("a"))
    alone = PartialObjectMetadata(metadata=ObjectMeta(name="llm", namespace="default", uid="nb"))
    notebook = GroupKind("kubeflow.org", "Notebook")
    world.builder.apply("notebooks.kubeflow.org", None, alone)
    world.builder.apply("pods", None, pod("b", owner=notebook, uid="nb"))
    problems = {key: gang.problem for key, gang in world.gangs.items()}
    assert problems == {
        "default/LeaderWorkerSet/llm": (
            "LeaderWorkerSet default/llm: spec.leaderWorkerTemplate.size must be a whole number "
            "of at least 0, is 'huge'"
        ),
        "default/Notebook/llm": "",
    }


def test_of_several_marks_the_first_source_decides_and_the_rest_are_named():
    def other(asked):
        return GangSpec("other", Owner("", "", "", "", ""), "", Subgroup())

    source = GroupSource(marker=lambda _chain: 'label other/group "x"', gang_spec=other)
    world = World(grouper=Grouper(sources=(POD_GROUP_ANNOTATION, source)))
    marked = pod("a", annotations={"scheduling.kai.io/pod-group": "ring"})
    world.builder.apply("pods", None, marked)
    world.builder.apply("pods", None, pod("b"))
    assert sorted(world.gangs) == ["default/PodGroup/ring", "other"]
    (torn,) = world.builder.snapshot(0.0).ignored_markers
    assert (torn.pod.name, torn.gang) == ("a", "default/PodGroup/ring")
    assert torn.markers == ('label other/group "x"',)
    world.builder.apply("pods", marked, None)
    assert world.builder.snapshot(0.0).ignored_markers == ()


def test_the_owner_chain_may_be_a_circle():
    world = World()
    reference = pod("x").metadata.owner_references
    circle = lws()
    circle = msgspec.structs.replace(
        circle, metadata=msgspec.structs.replace(circle.metadata, owner_references=reference)
    )
    world.builder.apply(COLLECTION, None, circle)
    world.builder.apply("pods", None, pod("a"))
    assert list(world.gangs) == ["default/LeaderWorkerSet/llm/0"]


def test_a_reference_with_the_uid_of_another_namespace_names_no_owner():
    """Nor is the gang of the pods that the object owns another one because of it."""
    for names in (("forged", "mine"), ("mine", "forged")):
        world = World()
        world.builder.apply(COLLECTION, None, lws(size=4))
        pods = {"forged": pod("forged", GroupKind("example.com", "Other")), "mine": pod("mine")}
        meta = msgspec.structs.replace(pods["forged"].metadata, namespace="other")
        pods["forged"] = msgspec.structs.replace(pods["forged"], metadata=meta)
        for name in names:
            world.builder.apply("pods", None, pods[name])
        gangs = world.gangs
        assert gangs["other/Other/llm"].owner_unknown
        assert gangs["other/Other/llm"].queue == ""
        assert gangs["default/LeaderWorkerSet/llm/0"].tree.min_pods() == 4


def test_a_reference_with_another_kind_does_not_change_the_gang_of_others():
    for names in (("other", "mine"), ("mine", "other")):
        world = World()
        world.builder.apply(COLLECTION, None, lws(size=4))
        pods = {"other": pod("other", GroupKind("example.com", "Other")), "mine": pod("mine")}
        for name in names:
            world.builder.apply("pods", None, pods[name])
        assert world.gangs["default/LeaderWorkerSet/llm/0"].tree.min_pods() == 4


def test_a_reference_with_another_name_names_no_owner():
    world = World()
    world.builder.apply(COLLECTION, None, lws())
    other = pod("a")
    [reference] = other.metadata.owner_references
    reference = msgspec.structs.replace(reference, name="another")
    meta = msgspec.structs.replace(other.metadata, owner_references=(reference,))
    world.builder.apply("pods", None, msgspec.structs.replace(other, metadata=meta))
    assert world.gangs["default/LeaderWorkerSet/another"].owner_unknown
