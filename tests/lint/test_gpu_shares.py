"""Requests for parts of GPUs that are read nowhere, or have values that are not valid."""

import pytest

from tests.lint.manifests import errors, fixed

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default, %s}
spec: {schedulerName: kai-scheduler, containers: [{name: a, image: i%s}]}
"""
WHOLE = ", resources: {limits: {nvidia.com/gpu: 1}}"


@pytest.mark.parametrize(
    ("annotations", "resources", "told"),
    [
        (
            'gpu-fraction: "0,5"',
            "",
            'annotations.gpu-fraction: "0,5" must be a number',
        ),
        ('gpu-fraction: "1"', "", "above 0 and below 1"),
        ("gpu-memory: 4Gi", "", 'annotations.gpu-memory: "4Gi" must be'),
        ('gpu-fraction: "0.5"', WHOLE, "a request for nvidia.com/gpu are mutually exclusive"),
        ('gpu-fraction: "0.5", gpu-memory: "9"', "", "are mutually exclusive"),
        ('gpu-fraction-num-devices: "2"', "", "needs gpu-fraction or gpu-memory as well"),
        ('gpu-fraction: "0.5", gpu-fraction-container-name: b', "", "gpu-fraction-container-name"),
    ],
)
def test_values_that_keep_a_pod_pending_are_told(annotations, resources, told):
    [error] = errors(POD % (f"annotations: {{{annotations}}}", resources))
    assert told in error


@pytest.mark.parametrize(
    "annotations",
    ["{}", '{gpu-fraction: "0.5", gpu-fraction-num-devices: "2"}', '{gpu-memory: "2000"}'],
)
def test_valid_values_are_not_told(annotations):
    assert errors(POD % (f"annotations: {annotations}", "")) == []


def test_labels_become_annotations():
    text = POD % ('labels: {gpu-fraction: "0.5"}', "")
    [error] = errors(text)
    assert "gpu-fraction is an annotation; as a label it is ignored" in error
    [pod] = fixed(text)
    assert pod["metadata"]["annotations"] == {"gpu-fraction": "0.5"}
    assert "labels" not in pod["metadata"]


DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: default, annotations: %s}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}, annotations: %s}
    spec: {containers: [{name: a, image: i}]}
"""


def test_annotations_above_the_pods_are_told():
    [error] = errors(DEPLOYMENT % ('{gpu-fraction: "0.5"}', "{}"))
    assert "gpu-fraction is ignored here: write it among the annotations of the pods" in error
    assert errors(DEPLOYMENT % ("{}", '{gpu-fraction: "0.5"}')) == []
