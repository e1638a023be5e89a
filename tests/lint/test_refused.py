"""Errors of an API server that no rule of its own names."""

import pytest

from kai_py.embedded.resources import CHECKED_KINDS
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
NO_CONTAINERS = """\
apiVersion: batch/v1
kind: Job
metadata: {name: j, namespace: n}
spec: {template: {spec: {restartPolicy: Never}}}
"""
TAINT_RULE = """\
apiVersion: resource.k8s.io/{}
kind: DeviceTaintRule
metadata: {{name: r}}
spec: {{deviceSelector: {{driver: gpu.nvidia.com}}, taint: {}}}
"""
SLICE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: s}}
spec:
  driver: gpu.nvidia.com
  nodeName: n
  pool: {{name: n, generation: 1, resourceSliceCount: 1}}
  devices: [{{name: d, taints: [{{key: a, effect: {}}}]}}]
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
        *(
            (
                TAINT_RULE.format(version, "{key: a, effect: PreferNoSchedule}"),
                "spec.taint.effect: the API rejects it: Unsupported value",
            )
            for version in ("v1", "v1beta2", "v1alpha3")
        ),
        (TAINT_RULE.format("v1", "{key: a}"), "spec.taint.effect: the API rejects it: Required"),
        (TAINT_RULE.format("v1", "{effect: None}"), "spec.taint.key: the API rejects it"),
        (TAINT_RULE.format("v1", '{key: a, value: b c, effect: "None"}'), "spec.taint.value: the"),
        (SLICE.format("NoRun"), "spec.devices[0].taints[0].effect: the API rejects it: Unsupp"),
        (
            CLAIM.replace("com}", "com, tolerations: [{operator: Exists, effect: Any}]}"),
            "exactly.tolerations[0].effect: the API rejects it: Unsupported value",
        ),
        (
            CLAIM.replace("com}", "com, tolerations: [{key: a, operator: Exists, value: b}]}"),
            "exactly.tolerations[0].value: the API rejects it: Invalid value",
        ),
        (
            CLAIM.replace("com}", "com, tolerations: [{key: a, operator: In}]}"),
            "exactly.tolerations[0].operator: the API rejects it: Unsupported value",
        ),
        (CLASS + "value: 2000000000\n", "value: the API rejects it: Invalid value: 2000000000"),
    ],
)
def test_what_the_api_server_refuses_is_told(text, told):
    assert told in errors(text)[0]


WRONG = {
    "ResourceClaim": CLAIM + "    constraints: [{}]\n",
    "ResourceClaimTemplate": (
        CLAIM.replace("Claim\n", "ClaimTemplate\n").replace("spec:\n", "spec:\n spec:\n")
        + "    constraints: [{}]\n"
    ),
    "DeviceClass": "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: c}\n"
    "spec: {extendedResourceName: '..'}\n",
    "ResourceSlice": SLICE.format("NoRun"),
    "DeviceTaintRule": TAINT_RULE.format("v1", "{key: a}"),
    "PodDisruptionBudget": "apiVersion: policy/v1\nkind: PodDisruptionBudget\n"
    "metadata: {name: b}\nspec: {minAvailable: 1, maxUnavailable: 1}\n",
    "PriorityClass": CLASS + "value: 2000000000\n",
}


@pytest.mark.parametrize("kind", sorted({kind for _, kind in CHECKED_KINDS}))
def test_every_kind_that_can_be_validated_is(kind):
    assert f"kind: {kind}\n" in WRONG[kind]
    assert any("the API rejects it" in each for each in errors(WRONG[kind]))


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


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        (POD.replace("  containers: [{name: a, image: b}]\n", ""), "spec"),
        (POD.replace("[{name: a, image: b}]", "[]"), "spec"),
        (NO_CONTAINERS, "spec.template.spec"),
        (NO_CONTAINERS.replace("{template: {spec: {restartPolicy: Never}}}", "{}"),
         "spec.template.spec"),
    ],
)  # fmt: skip
def test_pods_without_containers_are_refused(manifest, path):
    [error] = errors(manifest)
    assert error.endswith(f": {path}.containers: the API rejects it: Required value")


def test_objects_of_one_name_are_told_each_for_itself():
    wrong = POD + "  preemptionPolicy: Maybe\n"
    reports = lint_together([wrong, wrong])
    assert [len(report.errors) for report in reports] == [1, 1]
