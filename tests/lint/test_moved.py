"""Versions that are not served any more, and fields of older articles, one by one."""

import json

import pytest

from kai_py.lint.rules.grove import _CLIQUE_SPEC, _TEMPLATE
from kai_py.lint.rules.references import _MOVED
from kai_py.lint.rules.workloads import _POD_FIELDS
from tests.lint.manifests import fixed
from tests.support import yaml_text
from tests.support.linting import lint


def text(version, kind, **spec):
    meta = {"name": "n", "namespace": "m"}
    whole = {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}
    return json.dumps(whole) + "\n"


def version_of(report):
    return yaml_text.read(report.corrected)["apiVersion"]


def told(report):
    return [each.fixed for each in report.errors if each.field == "apiVersion"]


@pytest.mark.parametrize(("written", "served"), _MOVED.items(), ids=str)
def test_a_version_that_moved_is_replaced(written, served):
    report = lint(text(*written))
    assert (version_of(report), told(report)) == (served, [True])
    assert told(lint(text(served, written[1]))) == []


@pytest.mark.parametrize(
    ("kind", "version", "is_converted"),
    [
        *(
            (kind, version, version in ("v1beta1", "v1beta2", "v1alpha3"))
            for kind in ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate")
            for version in ("v1beta1", "v1beta2", "v1alpha3", "v1alpha2", "v1alpha1")
        ),
        ("ResourceSlice", "v1beta2", True),
        ("ResourceSlice", "v1beta1", False),
        ("ResourceSlice", "v1alpha3", False),
    ],
)
def test_versions_of_devices_are_converted_where_their_fields_are_the_same(
    kind, version, is_converted
):
    report = lint(text(f"resource.k8s.io/{version}", kind))
    assert told(report) == [is_converted]
    assert version_of(report) == f"resource.k8s.io/{'v1' if is_converted else version}"


@pytest.mark.parametrize("key", _POD_FIELDS)
def test_a_field_of_the_pod_on_the_job_is_moved_unless_the_pod_has_one(key):
    for own in ({}, {key: "own"}):
        pod = {"terminationGracePeriodSeconds": 1, **own}
        report = lint(text("batch/v1", "Job", **{key: "given"}, template={"spec": pod}))
        spec = yaml_text.read(report.corrected)["spec"]
        [found] = [each for each in report.errors if "it belongs to the pod" in each.message]
        assert found.message.endswith("which has one") is bool(own)
        assert spec.keys() == {"template"}
        expected = {"restartPolicy": "OnFailure"} if key == "restartPolicy" else own
        assert spec["template"]["spec"][key] == expected.get(key, "given")


def clique_set(**spec):
    (found,) = fixed(text("grove.io/v1alpha1", "PodCliqueSet", replicas=1, **spec))
    return found["spec"]


@pytest.mark.parametrize("key", _TEMPLATE)
def test_a_field_of_the_template_on_the_set_is_moved_unless_it_has_one(key):
    assert clique_set(**{key: [], "template": {"x": 1}})["template"][key] == []
    both = clique_set(**{key: [], "template": {key: [{"name": "a"}]}})
    assert (both[key], both["template"][key]) == ([], [{"name": "a"}])


@pytest.mark.parametrize(("key", "target"), _CLIQUE_SPEC.items())
def test_a_field_of_a_cliques_spec_on_the_clique_is_moved_unless_it_differs(key, target):
    (moved,) = clique_set(template={"cliques": [{"name": "a", key: 2}]})["template"]["cliques"]
    own = {} if target == "roleName" else {"roleName": "a"}
    assert moved == {"name": "a", "spec": {target: 2, **own}}
    kept = {"name": "a", "spec": {"roleName": "a", target: 3}, key: 2}
    document = text("grove.io/v1alpha1", "PodCliqueSet", replicas=1, template={"cliques": [kept]})
    assert yaml_text.read(lint(document).corrected)["spec"]["template"]["cliques"] == [kept]


def test_other_fields_of_a_clique_are_those_of_its_pods():
    written = {"name": "a", "labels": {}, "nodeSelector": {}, "containers": []}
    (moved,) = clique_set(template={"cliques": [written]})["template"]["cliques"]
    pods = {"nodeSelector": {}, "containers": []}
    assert (moved["labels"], moved["spec"]["podSpec"].items() >= pods.items()) == ({}, True)
