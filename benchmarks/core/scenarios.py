"""The problems of the peer's benchmarks, and ours at a size it does not reach.

Definitions: KAI-Scheduler ``pkg/scheduler/actions/benchmark_test.go`` and
``integration_tests/reclaim``; ``factor`` multiplies nodes and pods alike. The peer times the single
action it names, without building its session; here every scenario is a full cycle of all actions.
"""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.core.cluster import Cluster
from benchmarks.core.problems import (
    allocate,
    bound,
    gangs,
    half_running,
    many_queues,
    more_replicas_than_racks,
    one_gang,
    one_gang_in_a_block,
    preempt_for_nodes,
    reclaim_among_queues,
    reclaim_for_gang,
    reclaim_halves,
    reclaim_large,
    reclaim_many,
    reclaim_nodes,
    shapes_in_queues,
    unschedulable,
    unschedulable_in_a_rack,
    won,
)
from kai_py.plan.plan import Action


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A cluster and what a cycle must make of it, both for a factor of the size.

    ``peer``: KAI's milliseconds for the plain size on the machine of the reference figures, the
    floor of its harness taken off.
    """

    name: str
    title: str
    build: Callable[[int], Cluster]
    outcome: Callable[[int], str]
    peer: str = ""
    aim_ms: float | None = None


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="allocate",
        title="500 one-GPU jobs, 100 nodes, 4 queues",
        build=allocate(100, 500),
        outcome=bound(500),
        peer="152 ms",
        aim_ms=10,
    ),
    Scenario(
        name="gangs",
        title="100 gangs of 4, 50 nodes",
        build=gangs(50, 100, 4),
        outcome=bound(400),
        peer="110 ms",
        aim_ms=10,
    ),
    Scenario(
        name="full-cycle",
        title="250 running + 250 pending, 100 nodes",
        build=half_running(100, 500),
        outcome=bound(250),
        peer="121 ms",
        aim_ms=10,
    ),
    Scenario(
        name="consolidation",
        title="consolidation alone: 100 running + 100 pending, 50 nodes",
        build=half_running(50, 200, actions=(Action.CONSOLIDATE,)),
        outcome=lambda factor: f"{factor * 100} nominated",
        peer="351 ms",
        aim_ms=20,
    ),
    Scenario(
        name="many-queues",
        title="200 jobs, 50 nodes, 20 queues in 5 departments",
        build=many_queues,
        outcome=bound(200),
        peer="75 ms",
    ),
    Scenario(
        name="reclaim-large",
        title="reclaim by one gang of 250 × 8, 500 nodes of one-GPU jobs",
        build=reclaim_large(500),
        outcome=won(250, 2000),
        peer="11.7 s",
        aim_ms=200,
    ),
    Scenario(
        name="reclaim-many-200",
        title="reclaim by 1,600 one-GPU jobs, 200 nodes of one-GPU jobs",
        build=reclaim_many(200),
        outcome=won(1600, 1600),
        peer="26.2 s",
        aim_ms=200,
    ),
    Scenario(
        name="reclaim-many-500",
        title="reclaim by 4,000 one-GPU jobs, 500 nodes of one-GPU jobs",
        build=reclaim_many(500),
        outcome=won(4000, 4000),
        peer="351 s (busy machine)",
        aim_ms=1000,
    ),
    Scenario(
        name="reclaim-queues",
        title="reclaim by 400 one-GPU jobs of 200 queues from 200 other queues, 200 nodes",
        build=reclaim_among_queues(200),
        outcome=won(400, 400),
    ),
    Scenario(
        name="reclaim-halves",
        title="reclaim by 20 pods with half a GPU from 3,200 others, 200 nodes",
        build=reclaim_halves(200, 20),
        outcome=won(20, 20),
    ),
    Scenario(
        name="reclaim-nodes",
        title="20 jobs of 1 × 8 reclaim from one-GPU jobs of four queues, 500 nodes",
        build=reclaim_nodes(500, 20),
        outcome=won(20, 160),
        aim_ms=1000,
    ),
    Scenario(
        name="reclaim-apart",
        title="the same by 10 gangs of 4 × 4, one pod to a rack, 500 nodes",
        build=reclaim_nodes(500, 10, pods=4, gpus=4, racks=100),
        outcome=won(40, 160),
        aim_ms=1000,
    ),
    Scenario(
        name="preempt-nodes",
        title="20 jobs of 1 × 8 preempt one-GPU jobs of their queue, 500 nodes",
        build=preempt_for_nodes(500, 20),
        outcome=won(20, 160),
        aim_ms=1000,
    ),
    Scenario(
        name="unschedulable",
        title="gang of 10 × 8 that can't be, 200 nodes",
        build=unschedulable(200),
        outcome=lambda _: "nothing to do",
        peer="122 s (search cut)",
        aim_ms=50,
    ),
    Scenario(
        name="unschedulable-apart",
        title="the same, enough may be reclaimed, but one pod to a rack and only 9 racks",
        build=unschedulable(200, beyond=80, racks=9),
        outcome=lambda _: "nothing to do",
        peer="22 s at 100 nodes",
        aim_ms=50,
    ),
    Scenario(
        name="unschedulable-rack",
        title="the same, one GPU too few, all pods in one of 12 racks",
        build=unschedulable_in_a_rack(200, 12),
        outcome=lambda _: "nothing to do",
        peer="27 s at 100 nodes",
        aim_ms=50,
    ),
    Scenario(
        name="replicas-apart",
        title="two replicas wait of five, one to a rack, and there are only 3 racks, 1,000 nodes",
        build=more_replicas_than_racks(1_000),
        outcome=lambda _: "nothing to do",
        aim_ms=50,
    ),
    Scenario(
        name="gang-64-1k",
        title="gang of 64 × 8, 1,000 nodes",
        build=one_gang(1_000, 64, 8),
        outcome=bound(64),
        peer="0.15 s",
        aim_ms=2,
    ),
    Scenario(
        name="gang-64-10k",
        title="gang of 64 × 8, 10,000 nodes",
        build=one_gang(10_000, 64, 8),
        outcome=bound(64),
        peer="1.4 s",
        aim_ms=8,
    ),
    Scenario(
        name="gang-512-1k",
        title="gang of 512 × 8, 1,000 nodes",
        build=one_gang(1_000, 512, 8),
        outcome=bound(512),
        peer="1.06 s",
        aim_ms=4,
    ),
    Scenario(
        name="gang-512-10k",
        title="gang of 512 × 8, 10,000 nodes",
        build=one_gang(10_000, 512, 8),
        outcome=bound(512),
        peer="12.1 s",
        aim_ms=10,
    ),
    Scenario(
        name="gang-64-block",
        title="gang of 64 × 8 within a block of 64 nodes, 10,000 nodes",
        build=one_gang_in_a_block(10_000, 64, 64),
        outcome=bound(64),
        peer="26 ms",
        aim_ms=5,
    ),
    Scenario(
        name="singles-1000-1k",
        title="1,000 one-GPU jobs, 1,000 nodes",
        build=allocate(1_000, 1_000),
        outcome=bound(1_000),
        peer="1.9 s",
        aim_ms=25,
    ),
    Scenario(
        name="singles-1000-10k",
        title="1,000 one-GPU jobs, 10,000 nodes",
        build=allocate(10_000, 1_000),
        outcome=bound(1_000),
        peer="18.7 s",
        aim_ms=50,
    ),
    Scenario(
        name="singles-4000-10k",
        title="4,000 one-GPU jobs, 10,000 nodes",
        build=allocate(10_000, 4_000),
        outcome=bound(4_000),
        peer="72 s",
        aim_ms=200,
    ),
    Scenario(
        name="shapes",
        title="10,000 one-GPU pods of ten shapes, 20 queues, 10,000 nodes",
        build=shapes_in_queues,
        outcome=bound(10_000),
        aim_ms=500,
    ),
    Scenario(
        name="reclaim-gang",
        title="reclaim for a gang of 512 × 8, 10,000 nodes full with 20,000 gangs",
        build=reclaim_for_gang,
        outcome=won(512, 2048),
        aim_ms=1000,
    ),
)
