"""The day on spot nodes: the nodes of its rows, and what its figures are made of."""

import gzip

import pytest

from benchmarks.spot.__main__ import DECLARED, NODES, figures, read_models, scenario
from kai_py.config import Configuration
from kai_py.simulate.scenarios.simulation import simulate


def test_every_row_has_the_same_nodes_and_work():
    models = {"a": 10, "b": 6}
    rows = [scenario(each, models, spot=name != "on demand") for name, each in DECLARED.items()]
    assert {sum(kind.count for kind in row.nodes) for row in rows} == {NODES}
    assert {tuple((job.name, job.minutes, job.every) for job in row.jobs) for row in rows} == {
        tuple((job.name, job.minutes, job.every) for job in rows[0].jobs)
    }
    assert not any(kind.spot for kind in rows[0].nodes)
    assert [sum(kind.count for kind in row.nodes if kind.spot) for row in rows[1:]] == [12] * 4


def test_models_are_taken_in_proportion(tmp_path):
    path = tmp_path / "nodes.csv.gz"
    lines = ["node,model,gpus,cpus", *(f"{n},A_100,8,96" for n in range(30))]
    lines += [*(f"h{n},H800,8,96" for n in range(10)), "x,A10,1,8"]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert read_models(path) == {"a-100": 12, "h800": 4}


@pytest.mark.slow
def test_figures_of_a_short_day():
    short = scenario({}, {"a": 4}, spot=True).model_copy(update={"hours": 2.0})
    found = figures(simulate(short, Configuration()))
    assert found.useful_gpu_hours > 0
    assert found.price == 4 * 88 * 2
