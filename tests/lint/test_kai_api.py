"""KAI's own objects: fields that their definitions do not have, and bounds that are left out."""

import pytest
import yaml

from kai_py.deploy.kai_api import kai_defaults
from kai_py.lint.manifest import Severity
from tests.lint.manifests import errors, fixed, hints
from tests.support.linting import lint

QUEUE = """\
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  resources:
    gpu: {quota: 8, limit: -1, overQuotaWeight: 1}
    cpu: {quota: -1, limit: -1}
    memory: {quota: -1, limit: 0}
"""
GROUP = """\
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: g}
spec:
  queue: team
  subGroups: [{name: a, minMember: 2}, {name: b, minMember: 1, parent: a}]
"""
TOPOLOGY = """\
apiVersion: kai.scheduler/v1alpha1
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: zone}]}
"""


@pytest.mark.parametrize("text", [QUEUE, GROUP, TOPOLOGY, yaml.safe_dump_all(kai_defaults())])
def test_objects_as_kai_documents_them_are_valid(text):
    assert errors(text) == []
    assert [each for each in hints(text) if "limit" in each] == []


@pytest.mark.parametrize(
    ("text", "right", "wrong", "expected"),
    [
        (QUEUE, "overQuotaWeight", "overquotaWeight", "write overQuotaWeight"),
        (QUEUE, "resources:", "resource:", "write resources"),
        (GROUP, "subGroups", "subgroups", "write subGroups"),
        (GROUP, "parent: a", "parnet: a", "write parent"),
    ],
)
def test_fields_that_the_api_drops_are_corrected(text, right, wrong, expected):
    misspelt = text.replace(right, wrong)
    [error] = errors(misspelt)
    assert "no such field" in error
    assert expected in error
    assert fixed(misspelt) == [yaml.safe_load(text)]


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        (QUEUE, "scheduling.run.ai/v2", "scheduling.run.ai/v1"),
        (GROUP, "scheduling.run.ai/v2alpha2", "scheduling.run.ai/v2"),
    ],
)
def test_a_version_that_is_not_served_is_corrected(text, right, wrong):
    [error] = errors(text.replace(right, wrong))
    assert f"{wrong} is not served: write {right}" in error
    assert fixed(text.replace(right, wrong)) == [yaml.safe_load(text)]


@pytest.mark.parametrize(
    ("text", "right", "wrong", "expected"),
    [
        (
            QUEUE,
            "quota: 8",
            "quota: '8'",
            "spec.resources.gpu.quota in body must be of type number",
        ),
        (QUEUE, "quota: 8", "quota: true", "spec.resources.gpu.quota in body must be of type num"),
        (QUEUE, "spec:", "spec:\n  priority: 1.5", "spec.priority in body must be of type integer"),
        (QUEUE, "spec:", "spec:\n  reclaimMinRuntime: soon", "'soon' is not a duration"),
        (GROUP, "queue:", "preemptibility: maybe\n  queue:", 'values: "preemptible", "semi-'),
        (TOPOLOGY, "nodeLabel: zone", "", "spec.levels[0].nodeLabel: the API rejects it: Required"),
        (GROUP, "name: b", "name: B", "spec.subGroups[1].name in body should match"),
        (GROUP, "parent: a", "parent: c", 'there is no subgroup "c"'),
        (GROUP, "queue:", "minSubGroup: 3\n  queue:", "minSubGroup is 3, but there are only 1"),
        (GROUP, "queue:", "minMember: 1\n  minSubGroup: 1\n  queue:", "are both set"),
    ],
)
def test_values_without_a_meaning_are_reported(text, right, wrong, expected):
    [error] = errors(text.replace(right, wrong))
    assert expected in error


@pytest.mark.parametrize("resource", ["gpu", "cpu", "memory"])
def test_a_limit_that_is_left_out_is_reported_as_zero(resource):
    queue = yaml.safe_load(QUEUE)
    del queue["spec"]["resources"][resource]
    [found] = lint(yaml.safe_dump(queue)).findings
    assert (found.field, found.severity) == (f"spec.resources.{resource}.limit", Severity.HINT)
    assert "is not set, which means 0" in found.message


def test_other_versions_and_kinds_are_left_alone():
    assert errors(QUEUE.replace("scheduling.run.ai/v2", "scheduling.volcano.sh/v1beta1")) == []


MEMBER = """\
---
apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations: {pod-group-name: g}
  labels: {kai.scheduler/subgroup-name: b}
spec:
  schedulerName: kai-scheduler
  containers: [{name: c, image: i}]
"""


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [
        ("-name: b}", "-name: b}", []),
        ("-name: b}", "-name: c}", ['names "c", which is not a leaf of PodGroup g (b)']),
        ("-name: b}", "-name: a}", ['names "a", which is not a leaf of PodGroup g (b)']),
        ("labels: {kai", "labels: {other", ["is missing; it must name a leaf of PodGroup g (b)"]),
        ("pod-group-name: g", "pod-group-name: other", []),
        ("name: p\n", "name: p\n  namespace: elsewhere\n", []),
    ],
)
def test_pods_name_a_subgroup_that_their_pod_group_has(right, wrong, expected):
    found = errors(GROUP + MEMBER.replace(right, wrong))
    assert [
        each.partition("metadata: label kai.scheduler/subgroup-name ")[2] for each in found
    ] == [f"{each}; the pod stays pending until then" for each in expected]


def test_templates_of_pods_are_checked_too():
    job = """\
---
apiVersion: batch/v1
kind: Job
metadata: {name: j, labels: {kai.scheduler/queue: team}}
spec:
  template:
    metadata:
      annotations: {pod-group-name: g}
      labels: {kai.scheduler/subgroup-name: c}
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      containers: [{name: c, image: i}]
"""
    [error] = errors(GROUP + job)
    assert 'spec.template.metadata: label kai.scheduler/subgroup-name names "c"' in error


def test_task_groups_of_yunikorn_are_checked_in_the_pod_itself():
    text = MEMBER.replace(
        "annotations: {pod-group-name: g}",
        "annotations: {yunikorn.apache.org/task-group-name: b, "
        """yunikorn.apache.org/task-groups: '[{"name": "a", "minMember": 1}]'}""",
    ).replace("labels: {", "labels: {applicationId: app, ")
    [error] = errors(text)
    assert 'annotation yunikorn.apache.org/task-group-name "b" is not in' in error
