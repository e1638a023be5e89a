"""Rules that no other fast test noticed when they were broken, each by its smallest case."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from kai_py.api.gpu_share import SHARE_RESOURCE
from kai_py.api.queue import API_VERSION
from kai_py.api.records.core import (
    Condition,
    ContainerExtendedResourceRequest,
    LabelSelector,
    ObjectMeta,
    Pod,
    PodExtendedResourceClaimStatus,
    PodSchedulingGroup,
    PodSpec,
    PodStatus,
    SelectorRequirement,
)
from kai_py.api.records.kai import KaiQueue, KaiQueueStatus
from kai_py.api.records.unstructured import unstructured
from kai_py.api.references import GroupRef, PodRef
from kai_py.api.selectors import requirement_matches
from kai_py.commit.claims.reconcile import ClaimFailure, next_patch
from kai_py.commit.claims.recovery import planned_pods
from kai_py.commit.dependencies import ExecutorDependencies
from kai_py.commit.pod_state import ReadState, fence_group
from kai_py.commit.provisioner import REQUEST_KEY, pods_waiting_for
from kai_py.commit.statuses.kai import KaiQueueReport, kai_queue_patch
from kai_py.commit.statuses.queue_conditions import QueueCondition
from kai_py.grouping.admitted import PROTECTION, least_protected, shared_groups
from kai_py.grouping.owner_chain import OwnerChain
from kai_py.plan.plan import Action, Nomination, Plan
from kai_py.plan.state.assignment import Evicted
from kai_py.plan.victims.eviction_cost import ReplicaStep
from kai_py.plan.victims.minimise import by_total_cost
from kai_py.snapshot.gangs import JoinedClaim
from kai_py.snapshot.tables.queues import NamespaceRule, QueueInfo, closed_by_default
from tests.commit.test_exact_writes import ALLOCATION, claim, desired
from tests.commit.test_exact_writes import NOW as WRITTEN
from tests.dialects.feeding import Cluster, node, placed, pod
from tests.plan.state.test_statement import statement
from tests.support.worlds import gang, world

QUEUE = "scheduling.kai.io/queue-name"


def team(name="team", maximum=None, deserved=8):
    limit = {} if maximum is None else {"maxGPUs": maximum}
    return {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"deservedGPUs": deserved, **limit},
    }


def in_team(name, gpus=1, **parts):
    return pod(name, gpus, annotations={QUEUE: "team"}, **parts)


@pytest.mark.parametrize(("others", "allowed"), [(255, True), (256, False)])
def test_a_claim_takes_256_users(others, allowed):
    listed = [{"resource": "pods", "name": f"o{n}", "uid": f"o{n}"} for n in range(others)]
    patch = next_patch(desired(ALLOCATION), claim(reservedFor=listed), WRITTEN)
    assert isinstance(patch, ClaimFailure) is not allowed


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "PreferNoSchedule"])
@pytest.mark.parametrize("tolerated", [True, False])
def test_taints_of_nodes_keep_pods_away(effect, tolerated):
    tainted = {**node("n"), "spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}}
    tolerations = [{"key": "k", "operator": "Exists"}] if tolerated else []
    cluster = Cluster(team(), tainted, in_team("p", tolerations=tolerations))
    runs = tolerated or effect == "PreferNoSchedule"
    assert placed(cluster.plan()) == ({"p": "n"} if runs else {})


@pytest.mark.parametrize(("maximum", "starts"), [(2, True), (1, False)])
def test_nominated_pods_obey_a_maximum_that_was_lowered_meanwhile(maximum, starts):
    waiting = in_team("waits", 2)
    waiting["status"]["nominatedNodeName"] = "n"
    cluster = Cluster(team(maximum=maximum, deserved=1), node("n", 2), waiting)
    assert placed(cluster.plan()) == ({"waits": "n"} if starts else {})


@pytest.mark.parametrize("succeeded", [0, 1])
def test_a_gang_of_which_a_pod_has_succeeded_is_not_stale(succeeded):
    rest = replace(gang("rest", nodes="a", floor=2, stale_since=0.0), succeeded=succeeded)
    evictions = world({"a": 2}, rest).plan().evictions
    assert [each.action for each in evictions] == ([] if succeeded else [Action.STALE])


def test_claims_of_nominated_pods_are_wanted():
    nominated = PodRef("default", "p", "uid-p")
    assert planned_pods(Plan(nominations=(Nomination("g", nominated, "n"),))) == {"uid-p"}


@pytest.mark.parametrize("preemptible", [True, False])
def test_an_evicted_pod_gives_back_the_quota_that_it_was_charged(preemptible):
    running = replace(gang("runs", nodes="a", queue="q"), preemptible=preemptible)
    kept = statement()
    usage = kept.quota.usage
    before = usage.non_preemptible.copy()
    kept.evict(Evicted(running.members[0], running, Action.STALE, running, ""))
    assert bool((usage.non_preemptible != before).any()) is not preemptible


def test_the_annotation_names_the_queue_where_a_label_names_another():
    named = pod("p", annotations={QUEUE: "team"}, labels={QUEUE: "other"})
    cluster = Cluster(team(), team("other"), node("n"), named)
    assert cluster.gang("default/Pod/p").queue == "team"


def test_a_gpu_that_is_reserved_for_sharing_is_not_free_before_a_pod_shares_it():
    reserves = pod(
        "reserves",
        1,
        nodeName="n",
        labels={"app": "kai-resource-reservation", "runai-gpu-group": "g"},
    )
    reserves["metadata"]["namespace"] = "kai-resource-reservation"
    cluster = Cluster(team(), node("n", 1), reserves, in_team("waits"))
    plan = cluster.plan()
    assert placed(plan) == {}
    assert plan.nominations == ()


@pytest.mark.parametrize("parent", ["", "top"])
def test_queues_of_ours_without_a_rule_take_named_namespaces_and_those_of_kai_all(parent):
    def rules(api_version):
        given = [QueueInfo(name="top", api_version=api_version)] if parent else []
        given.append(QueueInfo(name="team", parent=parent, api_version=api_version))
        return {each.name: each.namespaces for each in closed_by_default(given)}

    named = NamespaceRule(selector=LabelSelector(match_labels={QUEUE: "team"}))
    assert rules(API_VERSION)["team"] == named
    assert rules(API_VERSION).get("top") is None
    assert set(rules("scheduling.run.ai/v2").values()) == {None}


def in_group(name, group, on=""):
    spec = PodSpec(node_name=on, scheduling_group=PodSchedulingGroup(pod_group_name=group))
    return Pod(metadata=ObjectMeta(name=name, namespace="ns", uid=name), spec=spec)


async def test_a_group_is_bound_by_its_own_pods_only():
    pods = [in_group("a", "other"), in_group("b", "bound", on="n")]

    async def call(request):
        return await request()

    async def listed(_resource, *, namespace):
        assert namespace == "ns"
        return SimpleNamespace(items=pods)

    access = SimpleNamespace(call=call, client=SimpleNamespace(list=listed), pods=None)
    bound = await fence_group(access, GroupRef("ns", "bound", "u"))
    assert (bound.state, bound.pod) == (ReadState.BOUND, pods[1])
    assert (await fence_group(access, GroupRef("ns", "none", "u"))).state is ReadState.WAITING


def test_a_request_is_waited_for_by_pods_without_a_node_that_name_it():
    def waiting(name, request, namespace="ns", on=""):
        marks = {REQUEST_KEY: request}
        meta = ObjectMeta(name=name, namespace=namespace, uid=name, annotations=marks)
        return (namespace, name), Pod(metadata=meta, spec=PodSpec(node_name=on))

    pods = dict(
        [
            waiting("waits", "r"),
            waiting("starts", "r", on="n"),
            waiting("apart", "r", namespace="x"),
            waiting("other", "s"),
        ]
    )
    request = unstructured({"metadata": {"name": "r", "namespace": "ns"}}, ())
    assert [each.metadata.name for each in pods_waiting_for(request, pods)] == ["waits"]


@pytest.mark.parametrize("first", range(3))
def test_what_protects_least_counts(first):
    kinds = [*PROTECTION][first:]
    assert least_protected(reversed(kinds)) is kinds[0]


@pytest.mark.parametrize("of", ["quiet", "waits"])
@pytest.mark.parametrize("order", ["namespace first", "namespace later", "namespace gone"])
def test_a_rule_that_selects_namespaces_by_label_follows_their_labels(order, of):
    apart = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {},
        "namespaceSelector": {"matchLabels": {"kind": "noisy"}},
    }
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    quiet, waits = ({"affinity": rules} if name == of else {} for name in ("quiet", "waits"))
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "default", "labels": {"kind": "noisy"}},
    }
    host = node("n", labels={"kubernetes.io/hostname": "n"})
    cluster = Cluster(team(), host, in_team("quiet", nodeName="n", **quiet))
    if order != "namespace later":
        cluster.add(namespace)
    cluster.add(in_team("waits", **waits))
    if order == "namespace later":
        cluster.snapshot()
        cluster.add(namespace)
    if order == "namespace gone":
        cluster.snapshot()
        cluster.remove(namespace)
    assert placed(cluster.plan()) == ({"waits": "n"} if order == "namespace gone" else {})


def test_an_empty_annotation_leaves_the_word_to_what_is_above():
    own = ObjectMeta(annotations={"k": "", "other": "x"})
    above = ObjectMeta(labels={"k": "above", "other": "y"})
    assert OwnerChain(Pod(), (own, above)).values(frozenset({"k"})) == {"k": "above"}


@pytest.mark.parametrize(
    ("operator", "matches"),
    [
        ("In", (True, False, False)),
        ("NotIn", (False, True, True)),
        ("Exists", (True, True, False)),
        ("DoesNotExist", (False, False, True)),
    ],
)
def test_requirements_on_labels(operator, matches):
    requirement = SelectorRequirement(key="k", operator=operator, values=("listed",))
    found = tuple(requirement_matches(requirement, value) for value in ("listed", "other", None))
    assert found == matches


def test_the_cheapest_units_are_those_for_the_pods_that_do_not_fit_yet():
    request = SimpleNamespace(members=gang("two", pods=2).members)
    steps = [ReplicaStep(1, ["dear"], (2.0, 1, 1)), ReplicaStep(1, ["cheap"], (1.0, 1, 1))]
    replicas = SimpleNamespace(rows=[0, 1], initial=1, of=lambda row: [steps[row]])
    assert by_total_cost(request, replicas, SimpleNamespace()) == ["cheap"]
    steps[0] = ReplicaStep(1, ["as cheap, on the first node"], (1.0, 1, 1))
    assert by_total_cost(request, replicas, SimpleNamespace()) == ["as cheap, on the first node"]


@pytest.mark.parametrize(("silent", "behind"), [((), ()), (("pods",), ()), ((), ("pods",))])
def test_views_are_fresh_if_none_is_silent_or_behind(silent, behind):
    freshness = SimpleNamespace(silent=lambda: silent, behind=lambda: behind)
    fresh = ExecutorDependencies.is_fresh.fget(SimpleNamespace(freshness=freshness))
    assert fresh is (not silent and not behind)


@pytest.mark.parametrize(("revision", "starts"), [("1", False), ("2", True)])
def test_match_label_keys_select_pods_with_the_same_value_only(revision, starts):
    apart = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "x"}},
        "matchLabelKeys": ["revision"],
    }
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    host = node("n", labels={"kubernetes.io/hostname": "n"})
    runs = in_team("runs", nodeName="n", labels={"app": "x", "revision": "1"})
    waits = in_team("waits", labels={"app": "x", "revision": revision}, affinity=rules)
    assert placed(Cluster(team(), host, runs, waits).plan()) == ({"waits": "n"} if starts else {})


def test_a_gang_shares_with_others_if_one_of_its_pods_does():
    def relying(member, charged_to):
        return replace(member, relies_on=(JoinedClaim("c", charged_to, {}, waits=False),))

    alone = gang("alone", pods=2)
    first, second = alone.members
    inside = relying(first, second.pod.uid)
    assert not replace(alone, members=(inside, second)).shares_with_others
    assert replace(alone, members=(inside, relying(second, "other"))).shares_with_others


def test_a_node_lacks_no_resource_of_which_exactly_enough_is_free():
    requests = {"cpu": "63", "nvidia.com/gpu": "8"}
    most = in_team(
        "runs", nodeName="n", containers=[{"name": "main", "resources": {"requests": requests}}]
    )
    plan = Cluster(team(deserved=64), node("n", 8), most, in_team("waits")).plan()
    assert "Insufficient nvidia.com/gpu" in plan.unplaced[0].message
    assert "Insufficient cpu" not in plan.unplaced[0].message


def test_conditions_of_others_stay_on_queues_of_kai():
    others = Condition(type="Theirs", status="True", reason="R", message="m")
    old = Condition(type="Ready", status="False", reason="Old", message="")
    known = KaiQueue(status=KaiQueueStatus(conditions=(others, old)))
    share = SimpleNamespace(allocated={}, non_preemptible={}, requested={})
    found = QueueCondition("Ready", "True", "Valid")
    patch = kai_queue_patch(KaiQueueReport(share, (), (found,)), known, WRITTEN)
    listed = {each["type"]: each["status"] for each in patch["status"]["conditions"]}
    assert listed == {"Theirs": "True", "Ready": "True"}


def test_a_pod_whose_part_of_a_gpu_is_claimed_has_none_of_a_device_plugin():
    marks = {"labels": {"runai-gpu-group": "g"}, "annotations": {"gpu-fraction": "0.5"}}
    shares = Pod(metadata=ObjectMeta(name="p", uid="p", **marks), spec=PodSpec(node_name="n"))
    assert [each.group for each in shared_groups(shares)] == ["g"]
    mapping = ContainerExtendedResourceRequest(resource_name=SHARE_RESOURCE)
    status = PodExtendedResourceClaimStatus(request_mappings=(mapping,))
    claimed = PodStatus(extended_resource_claim_status=status)
    assert list(shared_groups(replace(shares, status=claimed))) == []


@pytest.mark.parametrize("effect", ["NoSchedule", "PreferNoSchedule"])
def test_a_taint_that_no_node_had_before_keeps_pods_away(effect):
    cluster = Cluster(team(), node("n"), node("other"), in_team("runs", 8, nodeName="other"))
    cluster.snapshot()
    taints = [{"key": "k", "value": "v", "effect": effect}]
    cluster.add({**node("n"), "spec": {"taints": taints}}).add(in_team("waits"))
    assert placed(cluster.plan()) == ({} if effect == "NoSchedule" else {"waits": "n"})
