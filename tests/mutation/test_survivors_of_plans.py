"""What no other fast test noticed of how a cycle counts and decides, each by its smallest case."""

from types import SimpleNamespace

import numpy as np
import pytest

from kai_py.api.choices import FillStrategy
from kai_py.api.gpu_share import GpuShare, SharedGpu
from kai_py.api.records.core import ObjectMeta, OwnerReference, Pod
from kai_py.api.records.record import convert_record
from kai_py.api.records.resource import ResourceClaim, ResourceClaimSpec
from kai_py.api.references import ClaimRef
from kai_py.dra.compute_domains import ComputeDomain
from kai_py.dra.explain.diagnosis import AllocationDiagnosis
from kai_py.dra.pools import PhysicalDevice
from kai_py.grouping.frameworks.spark import SPARK
from kai_py.grouping.grouper import SINGLE_POD, _CachedTemplate, _is_current
from kai_py.grouping.owner_chain import OwnerChain
from kai_py.plan.actions.resume import capacity_holds
from kai_py.plan.placement import compute_domains
from kai_py.plan.placement.compute_domains import DomainPart, no_clique
from kai_py.plan.placement.exact import can_assign
from kai_py.plan.placement.fit import dominates
from kai_py.plan.placement.next_pods import next_request
from kai_py.plan.placement.preferences import IDLE, MAX_SPAN, STATED, rank_nodes
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Action, Stage
from kai_py.plan.session.search_budgets import SearchBudgets
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.session.startups import AVOIDED_SECONDS, Blame, Startups
from kai_py.plan.state.assignment import Evicted
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.victims import reduction
from kai_py.plan.victims.count import CapacityCount
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.search import SearchOutcome, VictimSearch, _TriedSet
from kai_py.policy.lost_work import LossRules
from kai_py.snapshot.shape import ClaimUse, Shape
from kai_py.snapshot.shared_gpus import SharedGpuTable, SharedGpuUsage
from kai_py.snapshot.tables.queues import NamespaceRule, QueueInfo
from tests.dialects.feeding import Cluster, node, pod
from tests.mutation.test_survivors import team
from tests.support.records import replace
from tests.support.scenario import cluster, job_with_pods
from tests.support.worlds import gang, world


def test_every_shape_of_a_request_must_reach_its_number():
    one, two = gang("one", pods=3, gpus=1), gang("two", pods=1, gpus=2)
    both = replace(one, members=(*one.members, *two.members))
    runs = gang("runs", nodes="aaa", gpus=1)
    state = world({"a": 3}, runs, one, two).session()
    counted = CapacityCount(state, both, both.members, {})
    needed = []
    for member in runs.members:
        needed.append(counted.is_enough)
        counted.release([member])
    assert (needed, counted.is_enough) == ([False, False, False], True)


@pytest.mark.parametrize(("missing", "said"), [(1, ("a pod", "it")), (2, ("2 pods", "them"))])
@pytest.mark.parametrize("seconds", [20.0, 5.0])
def test_the_capacity_that_is_held_is_that_of_one_pod_or_of_several(missing, said, seconds):
    pods, them = said
    begun = SimpleNamespace(key="g", owner=None, started=990.0, placeholders=("p",) * missing)
    snapshot = SimpleNamespace(gangs={"g": begun}, started_in_part=["g"], now=1000.0)
    (hold,) = capacity_holds(snapshot, seconds)
    assert hold.is_over is (seconds < 10)
    expected = {
        False: f"Capacity for {pods} of the gang is held until its framework creates {them}, "
        "for 20 s from its start",
        True: f"Capacity that was held for {pods} of the gang is released: "
        f"its framework has not created {them} within 5 s",
    }
    assert hold.message == expected[hold.is_over]


@pytest.mark.parametrize("queues", ["aa", "ab"])
@pytest.mark.parametrize("namespaces", ["xx", "xy"])
def test_a_device_that_gangs_of_several_tenants_blame_is_avoided_for_half_an_hour(
    queues, namespaces
):
    known = Startups()
    known.device_blames["device"] = tuple(
        Blame(time, queue, namespace, f"g{time}")
        for time, queue, namespace in zip((100.0, 200.0), queues, namespaces, strict=True)
    )
    found = list(known.devices_to_avoid(500.0))
    several = queues == "ab" and namespaces == "xy"
    assert found == ([("device", AVOIDED_SECONDS - 300.0)] if several else [])


def test_ranks_stay_exact_as_floats_where_tiers_differ_widely():
    preferences = {STATED: np.array([0, 2**50, 2**50]), IDLE: np.array([3, 0, 3])}
    ranks = rank_nodes(preferences, 3)
    assert ranks.argsort().tolist() == [0, 1, 2]
    assert ranks.max() < MAX_SPAN


def test_a_partition_that_takes_all_that_is_left_can_still_be_taken():
    halves = PhysicalDevice((("slices", 8),), ((("slices", 4),), (("slices", 4),)))
    assert [halves.is_exhausted(taken) for taken in ((), (0,), (0, 1))] == [False, False, True]


@pytest.mark.parametrize(
    ("faulty", "exceeded", "lasting"), [(0, 0, True), (1, 0, False), (0, 1, False)]
)
def test_what_keeps_claims_waiting_lasts_if_all_devices_were_seen(faulty, exceeded, lasting):
    found = AllocationDiagnosis(
        nodes=1, devices=1, faulty=("pool",) * faulty, budget_exceeded_nodes=exceeded, options=()
    )
    assert found.is_lasting is lasting


@pytest.mark.parametrize(("floor", "more"), [(2, True), (3, False)])
def test_a_request_says_whether_the_gang_has_further_pods(floor, more):
    one = replace(gang("one", pods=3, floor=floor), placeholders=())
    split = replace(one, tree=replace(one.tree, children=(replace(one.tree, name="leaf"),)))
    members = tuple(replace(each, subgroup="leaf") for each in one.members)
    split = replace(split, tree=replace(split.tree, min_members=1), members=members)
    for each in (one, split):
        state = world({"a": 8}, each).session()
        request = next_request(each, state.statement, state.can_never_run)
        assert (len(request.members), request.has_more) == (floor, more)


def test_a_pod_beyond_the_minimum_lacks_capacity_for_itself_alone():
    (unplaced,) = world({"a": 2}, gang("g", nodes=["a", "a", ""], floor=2)).plan().unplaced
    assert (unplaced.shortage.found, unplaced.shortage.min_members) == (0, 0)


@pytest.mark.parametrize(("cpu", "expected"), [({"cpu": 2}, 2000.0), ({}, 1000.0)])
def test_task_managers_of_flink_are_as_large_as_their_deployment_says(cpu, expected):
    deployment = {
        "apiVersion": "flink.apache.org/v1beta1",
        "kind": "FlinkDeployment",
        "metadata": {"name": "f", "uid": "f"},
        "spec": {"taskManager": {"resource": cpu}, "job": {"parallelism": 1}},
    }
    owner = {
        "apiVersion": deployment["apiVersion"],
        "kind": deployment["kind"],
        "name": "f",
        "uid": "f",
        "controller": True,
    }
    first = pod("jm", labels={"component": "jobmanager"})
    first["metadata"]["ownerReferences"] = [owner]
    (found,) = Cluster(team(), node("n"), deployment, first).snapshot().gangs.values()
    assert [each.shape.requests["cpu"] for each in found.placeholders] == [expected]


@pytest.mark.parametrize(("unknown", "marked"), [(None, True), ("Pod", True), ("Run", False)])
def test_an_executor_of_spark_waits_for_unknown_owners_other_than_its_driver(unknown, marked):
    reference = unknown and OwnerReference(kind=unknown, name="x", uid="x")
    executor = Pod(metadata=ObjectMeta(name="e", labels={"spark-app-selector": "app"}))
    assert bool(SPARK.marker(OwnerChain(executor, (), unknown=reference))) is marked


def test_pods_that_are_evicted_together_are_no_candidates_once_one_of_them_is_evicted():
    runs = gang("runs", nodes="ab", floor=2)
    state = world({"a": 1, "b": 1}, runs).session()
    pool = VictimPool(state)
    (queue,) = pool.queues()
    (unit,) = pool.units(queue)
    assert len(unit.members) == 2
    state.statement.evict(Evicted(unit.members[1], runs, Action.STALE, runs, ""))
    assert [*pool.units(queue)] == []


@pytest.mark.parametrize("policies", [("", ""), ("Never", ""), ("", "Never"), ("Never", "Never")])
def test_a_gang_preempts_if_all_of_its_pods_may(policies):
    owner, *pods = job_with_pods("train", 2, queue="q")
    given = [
        replace(each, spec=replace(each.spec, preemption_policy=policy))
        for each, policy in zip(pods, policies, strict=True)
    ]
    (found,) = cluster(owner, *given).snapshot().gangs.values()
    assert found.may_preempt is (policies == ("", ""))


@pytest.mark.parametrize(
    ("ours", "theirs", "gpus", "found"),
    [
        (None, None, 0, True),
        (0.5, None, 0, True),
        (0.5, 0.5, 0, True),
        (0.4, 0.5, 0, False),
        (None, 0.5, 1, True),
        (None, 0.5, 0, False),
    ],
)
def test_a_part_of_a_gpu_fits_wherever_as_large_a_part_or_a_whole_one_does(
    ours, theirs, gpus, found
):
    def shape(number, part, requests):
        share = None if part is None else GpuShare(fraction=part)
        return Shape(number=number, requests=requests, gpu_share=share)

    state = world({"a": 1}).session()
    request = shape(1, ours, {"nvidia.com/gpu": float(gpus)}), shape(2, theirs, {})
    fits = state.placer.shapes.fits
    assert dominates(state.statement, fits, *request) is found


def test_parts_of_gpus_in_mib_are_released_by_pods_that_terminate():
    table = SharedGpuTable()
    nodes = Cluster(node("n", 2)).snapshot().nodes
    for memory, releasing in ((1000.0, True), (500.0, False)):
        usage = SharedGpuUsage((SharedGpu("g", 0),), GpuShare(memory=memory))
        table.add("n", usage, 1.0, releasing=releasing)
    shown = table.snapshot(nodes)
    assert (shown.used.tolist(), shown.releasing.tolist()) == ([1500.0], [1000.0])


def owned(version, kind, spec):
    """A workload and what its pods say of it."""
    meta = {"name": "w", "uid": "w"}
    reference = {"apiVersion": version, "kind": kind, "controller": True, **meta}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}, reference


def test_pods_of_a_job_set_are_in_the_order_of_its_jobs_and_their_indexes():
    jobs = [
        {"name": name, "replicas": 2, "template": {"spec": {"parallelism": 2}}} for name in "ba"
    ]
    workload, reference = owned("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs})
    indexes = [(name, at, rank) for name in "ba" for at in "01" for rank in "01"]
    pods = []
    for number, (name, at, rank) in enumerate(indexes):
        labels = {
            "jobset.sigs.k8s.io/replicatedjob-name": name,
            "jobset.sigs.k8s.io/job-index": at,
            "batch.kubernetes.io/job-completion-index": rank,
        }
        pods.append(pod(f"p{9 - number}", labels=labels))
        pods[-1]["metadata"]["ownerReferences"] = [reference]
    (found,) = Cluster(team(), node("n"), workload, *pods).snapshot().gangs.values()
    assert [each.pod.name for each in found.members] == [f"p{9 - n}" for n in range(8)]


def test_the_driver_of_spark_is_first():
    labels = {"e": "executor", "z": "driver"}
    pods = [
        pod(name, labels={"spark-app-selector": "app", "spark-role": role})
        for name, role in labels.items()
    ]
    (found,) = Cluster(team(), node("n"), *pods).snapshot().gangs.values()
    assert [each.pod.name for each in found.members] == ["z", "e"]


@pytest.mark.parametrize("gpus", [False, True])
@pytest.mark.parametrize("gpu", FillStrategy)
@pytest.mark.parametrize("cpu", FillStrategy)
def test_pods_with_gpus_and_without_are_each_packed_or_spread_as_configured(gpus, gpu, cpu):
    waits = gang("waits", pods=2)
    shape = Shape(number=1, requests={"cpu": 1000.0, **({"nvidia.com/gpu": 1.0} if gpus else {})})
    waits = replace(waits, members=tuple(replace(each, shape=shape) for each in waits.members))
    made = world({"a": 4, "b": 4}, waits, gpu_strategy=gpu, cpu_strategy=cpu)
    (placement,) = made.plan().placements
    nodes = {each.node for each in placement.pods}
    assert len(nodes) == (1 if (gpu if gpus else cpu) is FillStrategy.BINPACK else 2)


@pytest.mark.parametrize("parent", [None, NamespaceRule(("ml",))])
@pytest.mark.parametrize("own", [None, NamespaceRule(("ml",))])
def test_a_queue_is_open_if_it_and_all_above_it_are(parent, own):
    queues = (
        QueueInfo(name="company", namespaces=parent),
        QueueInfo(name="team", parent="company", namespaces=own),
    )
    shares = {each.queue: each.is_open for each in world({"a": 1}, queues=queues).plan().queues}
    assert shares == {"company": parent is None, "team": parent is None and own is None}


def test_the_fit_of_a_shape_is_followed_within_a_cycle_and_found_again_in_another():
    waits = gang("waits", pods=1)
    shape = waits.members[0].shape
    one, other = (world({"a": 2}, waits).session() for _ in range(2))
    fits = one.placer.shapes.fits
    found = [
        fits.running_fit(each.statement, shape, Capacity.IDLE) for each in (one, one, other, other)
    ]
    assert found[0] is found[1]
    assert found[1] is not found[2]
    assert found[2] is found[3]
    assert found[2].statement is other.statement


@pytest.mark.parametrize(("parts", "assigned"), [("aa", True), ("ab", False), ("bb", False)])
def test_pods_are_assigned_by_capacity_if_nothing_else_matters_to_any_of_them(parts, assigned):
    shapes = {
        "a": Shape(number=1, requests={"cpu": 1.0}),
        "b": Shape(number=2, requests={"cpu": 1.0}, gpu_share=GpuShare(fraction=0.5)),
    }
    members = [[SimpleNamespace(shape=shapes[each])] for each in parts]
    assert can_assign(world({"a": 1}).session().statement, members) is assigned


@pytest.mark.parametrize("inner", [None, Unschedulable(Stage.TOPOLOGY, "inner.")])
@pytest.mark.parametrize("preferred", [(True,), (False,), (True, False)])
def test_cliques_explain_a_gang_unless_it_only_prefers_them(monkeypatch, inner, preferred):
    monkeypatch.setattr(compute_domains, "_fitting", lambda *_: np.zeros(1, np.int64))
    domains = SimpleNamespace(level=SimpleNamespace(names=["x"]))
    query = SimpleNamespace(domains=domains)
    pods = gang("g", pods=1).members
    parts = [DomainPart(ComputeDomain("default", "d"), pods, each, None) for each in preferred]
    reason = no_clique(query, parts, None, inner)
    if all(preferred) and inner is not None:
        assert reason is inner
    else:
        assert "must be in one NVLink clique" in reason.message


@pytest.mark.parametrize("in_order", [True, False])
def test_units_are_proposed_by_cost_unless_the_search_began_with_them(monkeypatch, in_order):
    proposed = []
    for name in ("ReplicaSteps", "by_node_eviction_cost", "by_total_cost"):
        monkeypatch.setattr(reduction, name, lambda *_: ())
    monkeypatch.setattr(reduction.VictimReduction, "_rows_of", lambda *_: [()])
    for name in ("is_cheapest", "needs_all_subsets"):
        monkeypatch.setattr(reduction, name, lambda *_: False)
    monkeypatch.setattr(
        reduction.VictimReduction, "_enough_of", lambda _, units: proposed.append([*units])
    )
    cheap, costly = (
        SimpleNamespace(cost=cost, gang=SimpleNamespace(priority=0), members=("pod",))
        for cost in (1, 2)
    )
    costs = SimpleNamespace(of=lambda units: sum(each.cost for each in units))
    costs.of_unit = lambda unit: unit.cost
    strategy = SimpleNamespace(
        state=SimpleNamespace(
            settings=CycleSettings(loss_rules=LossRules(by_loss=True)),
            search_budgets=SearchBudgets(0, 0, minimised_units=8),
        ),
        gang=None,
        request=None,
        other_candidates=lambda _priority: [costly, cheap],
        pool=SimpleNamespace(costs=costs),
    )
    taken = [cheap] if in_order else [costly]
    made = reduction.VictimReduction(strategy, SimpleNamespace(is_exact=False))
    assert made.minimise(taken, taken) == taken
    assert ([cheap, costly] in proposed) is not in_order


@pytest.mark.parametrize(("helper", "is_tried"), [("cd", True), ("bc", False), ("ab", False)])
def test_a_helper_has_no_pod_that_is_evicted_anyway(helper, is_tried):
    def unit(names):
        pods = (SimpleNamespace(pod=SimpleNamespace(uid=name)) for name in names)
        return SimpleNamespace(members=tuple(pods))

    tried = []
    search = SimpleNamespace(
        strategy=SimpleNamespace(helpers=lambda _: [unit(helper)]),
        trials=SimpleNamespace(probes=1),
        _try_victims=lambda units: tried.append(units) or _TriedSet(SearchOutcome.NO_CAPACITY),
    )
    victims = [unit("a"), unit("b")]
    assert not VictimSearch._try_with_helper(search, victims, victims[0])
    assert bool(tried) is is_tried


@pytest.mark.parametrize("changed", ["", "a", "b", "ab"])
def test_the_template_of_an_owner_holds_until_an_object_that_it_looked_up_changes(changed):
    before = {name: object() for name in "ab"}
    lookups = tuple((("kind", "default", name), found) for name, found in before.items())
    now = {name: object() if name in changed else found for name, found in before.items()}
    owners = SimpleNamespace(named=lambda _kind, _namespace, name: now[name])
    template = _CachedTemplate(SINGLE_POD, frozenset(), "", (), lookups)
    assert bool(_is_current(template, (), owners)) is not bool(changed)


@pytest.mark.parametrize(("charged", "own"), [(1, ["own"]), (2, ["own", "named"])])
def test_a_claim_that_a_pod_names_is_its_own_if_it_is_charged_for_it_beside_the_others(
    charged, own
):
    request = {"name": "r", "exactly": {"deviceClassName": "any"}}
    spec = convert_record({"devices": {"requests": [request]}}, ResourceClaimSpec)
    shared = ResourceClaim(metadata=ObjectMeta(name="named", uid="named"), spec=spec)
    uses = ClaimUse("own", spec), ClaimUse("named", spec, claim=shared)
    state = world({"a": 1}).session()
    cost = state.accounting.claim_spec(spec)
    member = replace(
        gang("g", pods=1).members[0],
        claims=tuple(ClaimRef("default", use.name, use.name) for use in uses),
        shape=Shape(number=1, requests={}, claims=uses),
        charge={name: charged * amount for name, amount in cost.items()},
    )
    assert [ref.name for ref in state.statement.devices.own_claims(member)] == own
