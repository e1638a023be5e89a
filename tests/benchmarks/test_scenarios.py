"""The builders make the peer's problems: sizes, queues, running pods; and cycles solve them."""

import pytest

from benchmarks.core import problems, real
from benchmarks.core.cluster import Cluster, counts
from benchmarks.core.objects import NODE_GPUS, RACK, Work, departments, nodes
from benchmarks.core.population import population
from benchmarks.core.scenarios import Scenario
from benchmarks.core.steady import Churn, full_cluster
from benchmarks.registry import benchmarks, chosen
from kai_py.api.records.core import Pod
from kai_py.plan.plan import Action


def decided(cluster: Cluster) -> str:
    return counts(cluster.decide(cluster.snapshot()))


def test_four_queues_share_two_departments():
    queues = {each.metadata.name: each.queue for each in departments(80)}
    assert {name: q.spec.parent for name, q in queues.items() if name.startswith("queue")} == {
        "queue-0": "dept-0",
        "queue-1": "dept-0",
        "queue-2": "dept-1",
        "queue-3": "dept-1",
    }
    snapshot = Cluster(departments(80), nodes(10)).snapshot()
    assert len(snapshot.nodes) == 10
    gpu = snapshot.resources.positions["nvidia.com/gpu"]
    assert snapshot.nodes.allocatable[gpu].sum() == 80


def test_a_work_of_several_pods_is_a_gang():
    cluster = Cluster(departments(16), nodes(2), Work(name="g", queue="queue-0", pods=3).objects())
    (gang,) = cluster.snapshot().gangs.values()
    assert gang.tree.min_members == len(gang.pending) == 3
    assert gang.queue == "queue-0"


@pytest.mark.parametrize("factor", [1, 2])
def test_pending_jobs_are_dealt_to_the_queues(factor):
    cluster = problems.allocate(2, 8)(factor)
    queues = [gang.queue for gang in cluster.snapshot().gangs.values()]
    assert sorted(queues) == sorted(f"queue-{i % 4}" for i in range(8 * factor))
    assert decided(cluster) == problems.bound(8)(factor)


def test_every_second_job_runs():
    cluster = problems.half_running(4, 16)(1)
    running = [g for g in cluster.snapshot().gangs.values() if g.bound]
    assert {gang.queue for gang in running} == {"queue-0", "queue-2"}
    assert decided(cluster) == "8 bound"


def test_gangs_fill_the_cluster():
    assert decided(problems.gangs(2, 4, 4)(1)) == "16 bound"


def test_a_gang_of_whole_nodes_reclaims_half_the_cluster():
    assert decided(problems.reclaim_large(4)(1)) == "2 nominated, 16 evicted"


def test_single_jobs_reclaim_the_cluster():
    assert decided(problems.reclaim_many(2)(1)) == "16 nominated, 16 evicted"


def test_one_gpu_less_than_needed_may_be_reclaimed():
    assert decided(problems.unschedulable(12)(1)) == "nothing to do"
    assert decided(problems.unschedulable(12, beyond=80)(1)) == "10 nominated, 80 evicted"


def test_ten_pods_that_repel_each_other_need_ten_racks():
    assert len({each.metadata.labels[RACK] for each in nodes(20, racks=9)}) == 9
    assert decided(problems.unschedulable(20, beyond=80, racks=9)(1)) == "nothing to do"
    assert decided(problems.unschedulable(20, beyond=80, racks=10)(1)) != "nothing to do"


def test_a_full_cluster_has_nothing_to_do_until_pods_end():
    cluster = full_cluster(60)
    snapshot = cluster.snapshot()
    assert snapshot.used[snapshot.resources.positions["nvidia.com/gpu"]].sum() == 60 * NODE_GPUS
    assert decided(cluster) == "nothing to do"
    churn = Churn(cluster, size=5)
    for _ in range(2):
        churn.prepare()
        assert counts(churn.step()) == "5 bound"


def test_rows_have_names_of_their_own_and_are_chosen_by_them():
    keys = [each.key for each in benchmarks()]
    assert len(keys) == len(set(keys))
    parts = dict.fromkeys(each.part for each in benchmarks())
    wanted = ["api", "scheduler-perf", "watch", "files", "core", "dra", "openb", "fairness"]
    wanted += ["dashboard"]
    assert list(parts) == wanted
    assert all(each.part == "core" for each in chosen(["core/"]))
    assert [each.key for each in chosen(["core/allocate"])] == [
        "core/allocate",
        "core/allocate-x2",
    ]
    assert chosen(["no such row"]) == []


def test_a_gang_stays_within_its_block():
    cluster = problems.one_gang_in_a_block(8, 4, 4)(1)
    plan = cluster.decide(cluster.snapshot())
    assert counts(plan) == "4 bound"
    (gang,) = plan.placements
    assert len({int(pod.node.removeprefix("node-")) // 4 for pod in gang.pods}) == 1


def test_no_rack_can_be_cleared():
    assert decided(problems.unschedulable_in_a_rack(24, 2)(1)) == "nothing to do"


def test_consolidation_can_run_alone():
    cluster = problems.half_running(4, 16, actions=(Action.CONSOLIDATE,))(1)
    assert decided(cluster) == "8 nominated"


def test_jobs_for_whole_nodes_preempt_the_jobs_on_one_node_each():
    assert decided(problems.preempt_for_nodes(3, 2)(1)) == "2 nominated, 16 evicted"


@pytest.mark.slow
@pytest.mark.parametrize(
    "build", [problems.allocate(20, 80), problems.reclaim_many(3), problems.gangs(5, 4, 4)]
)
def test_what_else_runs_on_a_cluster_changes_no_plan(build):
    scenario = Scenario(name="s", title="s", build=build, outcome=lambda _: "")
    measured = real.measure(scenario, 1)
    assert "WRONG" not in measured.outcome
    assert measured.peer.endswith("times the plain cluster")


def test_the_population_has_rules_of_every_kind():
    cluster = problems.allocate(200, 4)(1)
    cluster.tell(population(cluster.snapshot().nodes.names))
    pods = [
        each for each in population(tuple(f"n{i}" for i in range(200))) if isinstance(each, Pod)
    ]
    affinities = [each.spec.affinity.pod_anti_affinity for each in pods if each.spec.affinity]
    assert sum(bool(each.required) for each in affinities) * 100 // len(pods) in (0, 1)
    assert any(each.required for each in affinities)
    assert any(each.preferred for each in affinities)
    assert any(each.spec.topology_spread_constraints for each in pods)
    assert len({each.spec.containers[0].resources.requests["cpu"] for each in pods}) == 1_000
    snapshot = cluster.snapshot()
    assert snapshot.pod_rules.refusing
    assert snapshot.attachments
    assert not snapshot.budgets, "they protect no pod of ours"
