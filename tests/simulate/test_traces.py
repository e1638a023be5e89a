"""Lists of jobs and nodes as others publish them; the lines here are made up."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kai_py.cli import main
from kai_py.config import Configuration
from kai_py.simulate.scenarios import traces
from kai_py.simulate.scenarios.report import summarise
from kai_py.simulate.scenarios.scenario import NodeGroup, ScenarioError
from kai_py.simulate.scenarios.simulation import simulate
from kai_py.simulate.scenarios.traces import (
    MODEL_LABEL,
    is_trace,
    parse_jobs,
    parse_nodes,
    saturating_jobs,
    scenario_of,
)
from tests.support.records import replace

OPENB_JOBS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0000,12000,16384,1,1000,,LS,Running,0,7200,0
openb-pod-0001,6000,12288,1,460,,LS,Running,600,4200,600
openb-pod-0002,4000,8192,4,1000,V100M16|V100M32,BE,Succeeded,1200,3000,1200
openb-pod-0003,1500,2048,0,,,Burstable,Succeeded,1800,1860,1800
"""
OPENB_NODES = """\
sn,cpu_milli,memory_mib,gpu,model
openb-node-0000,64000,262144,2,P100
openb-node-0001,64000,262144,4,V100M32
openb-node-0002,64000,262144,2,P100
"""
SPOT_JOBS = """\
job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type
1,13,A100,8,4,2,0,7200,Spot
2,13,A100,8,8,1,1800,3600,HP
"""
SPOT_NODES = """\
node_name,gpu_model,gpu_capacity_num,cpu_num,price_per_hour,spot
0,A100,8,128,40,false
1,A10,1,64,1.5,true
"""


def played(jobs, nodes):
    scenario = scenario_of(parse_jobs(jobs, name="jobs"), parse_nodes(nodes, name="nodes"))
    return simulate(scenario, Configuration())


def test_a_pod_of_openb_is_a_job_that_runs_as_long_as_it_did():
    whole, part, several, none = parse_jobs(OPENB_JOBS, name="jobs").jobs
    assert (whole.gpus_per_pod, whole.cpu_per_pod, whole.memory_gib_per_pod) == (1, 12, 16)
    assert (part.gpus_per_pod, part.at, part.minutes, part.queue) == (0.46, 10, 60, "ls")
    assert several.gpus_per_pod == 4
    assert several.node_selector == {MODEL_LABEL: ("V100M16", "V100M32")}
    assert none.gpus_per_pod == 0


def test_models_that_no_label_can_have_become_ones_that_it_can():
    model = "NVIDIA A100 (80 GB)"
    jobs = SPOT_JOBS.replace("A100", model)
    played(jobs, SPOT_NODES.replace("A100", model))
    [selector] = {str(job.node_selector) for job in parse_jobs(jobs, name="jobs").jobs}
    assert selector == str({MODEL_LABEL: ("NVIDIA-A100-80-GB",)})
    [_, named] = parse_nodes(OPENB_NODES.replace("V100M32", "-é-"), name="nodes")
    assert named.labels == {}


def test_columns_are_known_by_their_other_names_and_in_any_order():
    lines = [line.split(",")[::-1] for line in OPENB_JOBS.splitlines()]
    renamed = {"name": "pod", "memory_mib": "mem_mib", "num_gpu": "gpus",
               "creation_time": "create_s", "deletion_time": "delete_s"}  # fmt: skip
    lines[0] = [renamed.get(column, column) for column in lines[0]]
    turned = "\n".join(map(",".join, lines))
    assert parse_jobs(turned, name="jobs") == parse_jobs(OPENB_JOBS, name="jobs")


def test_jobs_of_one_name_are_told_apart():
    lines = OPENB_JOBS.splitlines()
    header, lines = lines[0], [line.replace("-pod-0002", "-pod-0000-2") for line in lines[1:4]]
    listed = [header, *lines, *[line.replace("-pod-0001", "-pod-0000") for line in lines[:2]]]
    names = [job.name for job in parse_jobs("\n".join(listed), name="jobs").jobs]
    assert names == [
        "openb-pod-0000",
        "openb-pod-0001",
        "openb-pod-0000-2",
        "openb-pod-0000-3",
        "openb-pod-0000-4",
    ]


@pytest.mark.parametrize("nodes", [OPENB_NODES, SPOT_NODES])
@pytest.mark.parametrize(
    ("written", "is_spot"), [("true", True), ("Yes", True), ("1", True), ("no", False), ("", False)]
)
def test_nodes_of_either_list_may_have_a_price_and_be_spot_nodes(nodes, written, is_spot):
    header, first, *_ = (line.split(",")[:5] for line in nodes.splitlines())
    columns = [name for name in header if name != "price_per_hour"]
    plain = ",".join(first[: len(columns)])
    [bare] = parse_nodes(f"{','.join(columns)}\n{plain}\n", name="nodes")
    assert (bare.price_per_hour, bare.spot) == (0.0, False)
    more = f"{','.join(columns)},price_per_hour,spot\n{plain},1.5,{written}\n"
    [found] = parse_nodes(more, name="nodes")
    assert (found.price_per_hour, found.spot) == (1.5, is_spot)


def test_equal_nodes_are_one_kind():
    two, one = parse_nodes(OPENB_NODES, name="nodes")
    assert (two.count, two.gpus, two.cpu, two.labels) == (2, 2, 64, {MODEL_LABEL: "P100"})
    assert (one.count, one.gpus, one.name) == (1, 4, "node-1")


def test_openb_is_played_and_pods_go_to_the_models_that_they_accept():
    found = summarise(played(OPENB_JOBS, OPENB_NODES))
    assert found.hours == 2
    assert found.waiting_times.gangs == 4
    assert found.waiting_times.never_started == 0
    received = {queue.queue: queue.received for queue in found.queues}
    assert received["ls"] == pytest.approx(2 + 0.46, rel=0.02)
    assert received["be"] == pytest.approx(4 * 0.5, rel=0.02)
    elsewhere = OPENB_NODES.replace("V100M32", "P100")
    assert summarise(played(OPENB_JOBS, elsewhere)).waiting_times.never_started == 1


def test_high_priority_takes_the_capacity_of_spot_gangs_whole():
    found = summarise(played(SPOT_JOBS, SPOT_NODES))
    assert found.evictions == {"preempt": 2}
    assert found.lost_gpu_hours == pytest.approx(8 * 0.5, rel=0.02)
    assert found.cost == {"on demand": 80, "spot": 3}
    (organization,) = found.queues
    assert organization.queue == "org-13"


def test_saturating_asks_for_almost_one_and_a_third_and_no_pod_is_evicted():
    nodes = [NodeGroup(name="n", count=10, gpus=8)]
    recorded = parse_jobs(OPENB_JOBS, name="jobs")
    first, again, other = (saturating_jobs(recorded, nodes, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    asked = sum(job.pods * job.gpus_per_pod for job in first.jobs)
    assert 1.3 * 80 - 4 < asked <= 1.3 * 80
    assert len({job.name for job in first.jobs}) == len(first.jobs)
    assert all(job.minutes > 60 * 24 for job in first.jobs)
    assert max(job.at for job in first.jobs) < 60


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,b\n1,2\n", "jobs:1: a list of jobs has the columns cpu_milli, "),
        (OPENB_JOBS.replace("12000", "many"), "jobs:2: cpu_milli: 'many' is not a number"),
        (OPENB_JOBS.replace("7200", "inf", 1), "jobs:2: deletion_time: 'inf' is not a number"),
        (OPENB_JOBS.replace(",LS,Running,0,7200,0", ",LS"), "jobs:2: "),
        (OPENB_JOBS.replace("num_gpu", "gpu_number"), "jobs:1: column gpus is missing"),
        (SPOT_JOBS.replace(",2,0,7200", ",0,0,7200"), "jobs:2: pods: "),
    ],
)
def test_what_cannot_be_read_names_the_line(text, problem):
    with pytest.raises(ScenarioError, match=problem):
        parse_jobs(text, name="jobs")


HEADER, FIRST, *_ = OPENB_JOBS.splitlines()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (f"{FIRST},1", "jobs:2: has 12 columns, the first line has 11"),
        (FIRST.rpartition(",")[0], "jobs:2: has 10 columns, the first line has 11"),
        ("x" * 200_000, "jobs:2: field larger than field limit"),
    ],
)
def test_a_line_of_another_form_is_named(line, problem):
    other_limit = csv.field_size_limit(131_072)  # of the process; readers of large lists raise it
    try:
        with pytest.raises(ScenarioError, match=problem):
            parse_jobs(f"{HEADER}\n{line}\n", name="jobs")
    finally:
        csv.field_size_limit(other_limit)


@pytest.mark.parametrize(
    ("jobs", "problem"),
    [(HEADER, "queues: "), (f"{HEADER}\n{FIRST.replace(',0,', ',500000000,', 1)}", "hours: ")],
)
def test_a_list_that_makes_no_scenario_is_refused(jobs, problem):
    with pytest.raises(ScenarioError, match=problem):
        scenario_of(parse_jobs(jobs, name="jobs"), parse_nodes(OPENB_NODES, name="nodes"))


def test_jobs_too_small_to_fill_the_nodes_are_refused(monkeypatch):
    monkeypatch.setattr(traces, "MAX_ARRIVALS", 100)
    recorded = parse_jobs(OPENB_JOBS.replace("460", "1"), name="jobs")
    tiny = replace(recorded, jobs=recorded.jobs[1:2])
    with pytest.raises(ScenarioError, match="more than 100 of these jobs would fill the nodes"):
        saturating_jobs(tiny, parse_nodes(OPENB_NODES, name="nodes"), seed=0)


def test_a_scenario_is_no_list():
    assert not is_trace("hours: 2\nnodes: [{name: n}]\n")
    assert not is_trace("")


def simulated(*arguments):
    result = CliRunner().invoke(main.app, ["simulate", *map(str, arguments)], obj=main.Invocation())
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


@pytest.fixture
def files(tmp_path) -> tuple[Path, Path]:
    jobs, nodes = tmp_path / "jobs.csv", tmp_path / "nodes.csv"
    jobs.write_text(SPOT_JOBS)
    nodes.write_text(SPOT_NODES)
    return jobs, nodes


def test_the_command_takes_a_list_of_jobs_with_nodes_of_a_list_or_of_a_scenario(files, tmp_path):
    jobs, nodes = files
    found = json.loads(simulated(jobs, "--nodes", nodes, "--json"))
    assert found["waiting_times"]["gangs"] == 2
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "nodes: [{name: a, gpus: 8, labels: {nvidia.com/gpu.product: A100}}]\n"
        "queues: [{name: org-13, deservedGPUs: 8}, {name: other}]\n"
    )
    found = json.loads(simulated(jobs, "--nodes", scenario, "--hours", "1", "--json"))
    assert found["hours"] == 1
    assert [queue["queue"] for queue in found["queues"]] == ["org-13", "other"]


def test_the_command_says_what_it_lacks(files, tmp_path):
    jobs, _ = files
    with pytest.raises(main.CommandError, match="needs nodes: --nodes"):
        simulated(jobs)
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("nodes: [{name: n}]\nqueues: [{name: q}]\n")
    unknown = tmp_path / "unknown.csv"
    unknown.write_text("a,b\n1,2\n")
    with pytest.raises(main.CommandError, match="a list of jobs has the columns"):
        simulated(unknown)
    with pytest.raises(main.CommandError, match="require a list of jobs"):
        simulated(scenario, "--saturate")
