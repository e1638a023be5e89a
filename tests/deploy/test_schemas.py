"""What `kai-py install` prints has no field that Kubernetes does not know, offline, by its schemas.

The chart renders the same objects (test_helm.py), and a server takes them (tests/cluster).
"""

from copy import deepcopy

import pytest
from kubernetes_validate import SchemaNotFoundError, ValidationError, validate

from kai_py.config import Configuration
from kai_py.deploy.objects import Installation, manifests

VERSIONS = ("1.34", "1.35", "1.36", "1.37")
OF_OTHERS = {"ServiceMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator, which Kubernetes has no schema of."""


@pytest.fixture(scope="module")
def objects():
    return manifests(
        Installation(
            image="registry.example/kai-py:1",
            namespace="gpu",
            replicas=2,
            configuration=Configuration(),
            monitoring=True,
            webhook=True,
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_what_the_schema_of_its_kind_says(objects, version):
    unknown = set()
    for each in objects:
        try:
            assert validate(each, version, strict=True) == version
        except SchemaNotFoundError:
            unknown.add(each["kind"])
    assert unknown == OF_OTHERS


def test_a_misspelt_field_is_found(objects):
    deployment = deepcopy(next(each for each in objects if each["kind"] == "Deployment"))
    deployment["spec"]["template"]["spec"]["securityContex"] = {}
    with pytest.raises(ValidationError, match="securityContex"):
        validate(deployment, VERSIONS[-1], strict=True)
