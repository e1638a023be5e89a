"""Errors of an API server that no rule of its own names."""

import pytest

from kai_py.lint.check import lint_together
from tests.lint.manifests import errors

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: n}
spec:
  schedulerName: kai-scheduler
  containers: [{name: a, image: b}]
"""
CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: n}
spec:
  devices:
    requests:
    - {name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: j, namespace: n}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: a, image: b}]
      tolerations: [{key: a, operator: Is}]
"""
CLASS = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: p}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            POD + "  tolerations: [{value: a}]\n",
            "spec.tolerations[0].operator: the API rejects it:",
        ),
        (POD + "  tolerations: [null]\n", "spec.tolerations[0].operator: the API rejects it:"),
        (POD + "  preemptionPolicy: Maybe\n", "preemptionPolicy: the API rejects it: Unsupported"),
        (JOB, "spec.template.spec.tolerations[0].operator: the API rejects it: Unsupported value"),
        (CLAIM + "    constraints: [{}]\n", "spec.devices.constraints[0]: the API rejects it:"),
        (CLAIM + "    - null\n", "spec.devices.requests[1]"),
        (CLASS + "value: 2000000000\n", "value: the API rejects it: Invalid value: 2000000000"),
    ],
)
def test_what_the_api_server_refuses_is_told(text, told):
    assert told in errors(text)[0]


@pytest.mark.parametrize(
    "text",
    [
        POD + "  resourceClaims: [{resourceClaimName: c}]\n",
        POD.replace("image: b", "image: b, resources: {claims: [{name: x}]}"),
        CLAIM.replace("exactly: {", "exactly: {capacity: {requests: {memory: much}}, "),
        CLAIM.replace("exactly: {", "exactly: {count: -1, "),
        CLAIM.replace("resource.k8s.io/v1", "resource.k8s.io/v1beta2"),
    ],
)
def test_what_a_rule_names_is_told_once(text):
    assert [each for each in errors(text) if "the API rejects it:" in each] == []
    assert len(errors(text)) == 1


def test_objects_of_one_name_are_told_each_for_itself():
    wrong = POD + "  preemptionPolicy: Maybe\n"
    reports = lint_together([wrong, wrong])
    assert [len(report.errors) for report in reports] == [1, 1]
