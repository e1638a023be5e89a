"""The runner of Kubernetes' lists: what it makes of them, and one of them on a control plane."""

from pathlib import Path

import pytest
import yaml

from benchmarks.api.documents import KAI_PY, KUBE_SCHEDULER
from benchmarks.scheduler_perf.lists import (
    Operation,
    Workload,
    manifest,
    reduced,
    with_parameters,
    workload,
    workloads,
)
from benchmarks.scheduler_perf.rows import CHOSEN, measure
from benchmarks.scheduler_perf.run import OPERATIONS
from tests.support.patience import time_limit

LIST = """
- name: Some
  defaultPodTemplatePath: pod.yaml
  workloadTemplate:
  - {opcode: createNodes, countParam: $nodes}
  - opcode: createPodSets
    countParam: $sets
    createPodsOp: {opcode: createPods, countParam: $pods}
  workloads:
  - {name: small, params: {nodes: 5, sets: 2, pods: 3}}
  - {name: large, params: {nodes: 50, sets: 4, pods: 30}}
"""


def test_parameters_of_a_workload_stand_in_its_operations(tmp_path):
    (tmp_path / "kind").mkdir()
    (tmp_path / "kind" / "performance-config.yaml").write_text(LIST)
    small, large = workloads(tmp_path)
    assert (small.case, small.name, small.pod_template) == ("Some", "small", "pod.yaml")
    assert small.directory == tmp_path / "kind"
    assert [each.fields["count"] for each in small.operations] == [5, 2]
    assert large.operations[1].fields["createPodsOp"]["count"] == 30
    with pytest.raises(KeyError):
        with_parameters({"countParam": "$missing"}, {})


def test_a_reduced_workload_has_a_fraction_of_its_nodes_and_pods():
    operations = tuple(
        Operation(opcode, {"count": count, "namespace": "a"})
        for opcode, count in [
            ("createNodes", 500),
            ("createNodes", 0),
            ("createNamespaces", 3),
            ("createPods", 1001),
            ("createPods", 2),
        ]
    )
    full = Workload("Some", "large", Path(), "pod.yaml", operations)
    quarter = reduced(full, 4)
    assert [each.fields["count"] for each in quarter.operations] == [125, 0, 3, 250, 1]
    assert all(each.fields["namespace"] == "a" for each in quarter.operations)
    assert reduced(full, 1) == full


def test_templates_have_their_index_and_nothing_else(tmp_path):
    template = {"name": "a-{{.Index}}", "amount": "{{Mod .Index 25}}"}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(template))
    assert manifest(tmp_path, "a.yaml", 57) == {"name": "a-57", "amount": "7"}
    (tmp_path / "b.yaml").write_text("name: '{{.Name}}'")
    with pytest.raises(LookupError, match=r"b\.yaml"):
        manifest(tmp_path, "b.yaml")


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(time_limit(300))
@pytest.mark.parametrize("scheduler", [KAI_PY, KUBE_SCHEDULER])
async def test_a_list_is_done_by_either_scheduler(scheduler):
    outcome = await measure(workload("SchedulingPodAntiAffinity", "5Nodes"), scheduler)
    assert outcome.pods == 4
    assert min(outcome.creating, outcome.seconds) > 0


@pytest.mark.cluster
def test_the_rows_use_operations_that_there_are():
    for case, name, _ in CHOSEN:
        opcodes = {operation.opcode for operation in workload(case, name).operations}
        assert opcodes <= OPERATIONS.keys()
