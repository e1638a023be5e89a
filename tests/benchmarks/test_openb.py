"""The replay of the openb trace: on a small trace made here, and on the real one where it is."""

import csv
import gzip
from functools import cache

import pytest

from benchmarks.openb.choice import chosen_score
from benchmarks.openb.curve import allocation_curve
from benchmarks.openb.replay import PlacedPod, replay
from benchmarks.openb.scores import SCORES
from benchmarks.openb.trace import TracePod, read_trace, target_shapes, whole_gpus
from kai_py.api.choices import BuiltInScore
from tests.support.records import replace
from tests.support.repository import OPENB, needs


@pytest.fixture
def small(tmp_path):
    (tmp_path / "nodes_gpu.csv").write_text(
        "node,cpu_milli,mem_mib,gpus,model\n"
        "n0,32000,65536,2,T4\nn1,32000,65536,4,T4\nn2,64000,65536,8,G2\n"
    )
    lines = ["pod,cpu_milli,mem_mib,gpus,gpu_milli,gpu_spec,qos"]
    for i in range(12):
        lines.append(f"a{i:02d},2000,1024,1,500,,LS")
        lines.append(f"b{i:02d},4000,1024,1,1000,{'G2|T4' if i % 2 else 'G2'},LS")
    lines += ["c0,8000,1024,4,1000,,LS", "d0,4000,1024,0,0,,BE"]
    with gzip.open(tmp_path / "pods_small.csv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    return tmp_path


def audit(trace, placed):
    """No GPU, CPU or memory of a node is given away twice, and models are respected."""
    nodes = {node.name: node for node in trace.nodes}
    used: dict[tuple, float] = {}
    for each in placed:
        if not each.node:
            continue
        pod, node = each.pod, nodes[each.node]
        assert len(set(each.devices)) == pod.gpus
        assert all(0 <= device < node.gpus for device in each.devices)
        assert not pod.models or node.model in pod.models
        for device in each.devices:
            used[node.name, device] = used.get((node.name, device), 0) + pod.gpu_milli
        for name, amount in (("cpu", pod.cpu_milli), ("mem", pod.mem_mib)):
            used[node.name, name] = used.get((node.name, name), 0) + amount
    for (name, what), amount in used.items():
        limits = {"cpu": nodes[name].cpu_milli, "mem": nodes[name].mem_mib}
        assert amount <= limits.get(what, 1000)


@pytest.mark.parametrize("score", SCORES)
def test_nothing_is_given_away_twice(small, score):
    trace = read_trace(small, "small", 1)
    placed = replay(trace, score)
    audit(trace, placed)
    assert [each.pod for each in placed] == list(trace.arrivals)
    assert sum(bool(each.node) for each in placed) > 10
    assert sum(pod.milli for pod in trace.arrivals) <= 1.3 * trace.capacity


def test_the_same_seed_gives_the_same_placements(small):
    runs = [replay(read_trace(small, "small", 7), BuiltInScore.FGD) for _ in range(2)]
    assert runs[0] == runs[1]


def test_a_curve_is_the_mean_of_arrivals_at_each_percent():
    pods = [TracePod(f"p{i}", 0, 0, 1, milli, ()) for i, milli in enumerate((500, 4, 496))]
    placed = [PlacedPod(pods[0], "n"), PlacedPod(pods[1]), PlacedPod(pods[2], "n")]
    assert allocation_curve(placed, 1000) == {50: (50 + 50) / 2, 100: pytest.approx(99.6)}


def test_the_target_workload_is_the_frequent_shapes(small):
    found = target_shapes(read_trace(small, "small", 1).listed)
    assert [(pod.gpu_milli, count) for pod, count in found][:3] == [(500, 12), (1000, 6), (1000, 6)]


def test_without_shared_gpus_the_others_come_again_until_130_percent(small):
    trace = whole_gpus(read_trace(small, "small", 1))
    assert {pod.name[0] for pod in trace.listed} == {"b", "c", "d"}
    assert not any(pod.shares for pod in trace.arrivals)
    asked, largest = sum(pod.milli for pod in trace.arrivals), 4000
    assert 1.3 * trace.capacity - largest < asked <= 1.3 * trace.capacity


def test_the_default_scores_where_gpus_could_be_left_over(small):
    trace = whole_gpus(read_trace(small, "small", 1))
    assert chosen_score("default", trace) == BuiltInScore.FRUGAL
    light = replace(trace, arrivals=tuple(pod for pod in trace.arrivals if pod.name[0] == "c"))
    assert chosen_score("default", light) is None
    assert chosen_score("fgd", light) == BuiltInScore.FGD


@cache
def default_list():
    return read_trace(OPENB, "default", 42)


@cache
def default_placements(strategy):
    """Of the default list; two tests look at those of ``fgd``."""
    return replay(default_list(), strategy)


@pytest.mark.slow
@needs(OPENB)
@pytest.mark.parametrize(
    ("strategy", "published", "within"),
    [("best-fit", "bestfit", 0.011), ("packing", "packing", 0.011), ("fgd", "fgd", 0.1)],
)
def test_published_curves_are_met(strategy, published, within):
    with gzip.open(OPENB / "published_alloc.csv.gz", "rt") as lines:
        [curve] = [
            row
            for row in csv.DictReader(lines)
            if (row["list"], row["policy"], row["seed"]) == ("default", published, "42")
        ]
    trace, placed = default_list(), default_placements(strategy)
    audit(trace, placed)
    ours = allocation_curve(placed, trace.capacity)
    for asked in range(1, 131):
        assert abs(ours[asked] - float(curve[str(asked)])) <= within, asked


@pytest.mark.slow
@needs(OPENB)
def test_ours_packs_the_trace_better_than_fragmentation_gradient_descent():
    given = {
        strategy: allocation_curve(default_placements(strategy), default_list().capacity)[130]
        for strategy in (BuiltInScore.FGD, BuiltInScore.FRUGAL)
    }
    assert given[BuiltInScore.FRUGAL] > given[BuiltInScore.FGD] + 0.1


@pytest.mark.slow
@needs(OPENB)
def test_the_default_packs_whole_gpus_better_than_fragmentation_gradient_descent():
    trace = whole_gpus(default_list())
    given = {
        name: allocation_curve(replay(trace, chosen_score(name, trace)), trace.capacity)[130]
        for name in ("default", "fgd")
    }
    assert given["default"] > given["fgd"] + 0.5
