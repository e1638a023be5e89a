"""A misspelt name: the first suggestion corrects it, and applied it starts the gang."""

import pytest

from kai_py.api.choices import Subject
from kai_py.config import Configuration
from kai_py.simulate.changes import ApplySteps
from kai_py.simulate.explained_cluster import explain_cluster
from tests.simulate.clusters import job, queue, running, simulated, template

pytestmark = pytest.mark.slow


def first_suggestion(cluster, name):
    cluster.settle(60)
    [found] = explain_cluster(
        cluster.documents(),
        Configuration(),
        now=cluster.clock.now(),
        subject=Subject.GANG,
        name=f"default/Job/{name}",
    )
    return found.suggestions[0]


def edited(document, change):
    change(document["spec"]["template"]["spec"])
    return document


def selects(label, value):
    return lambda spec: spec.update(nodeSelector={label: value})


def requires(key, *values):
    expression = {"key": key, "operator": "In", "values": list(values)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return lambda spec: spec.update(affinity=affinity)


def asks(resource):
    def change(spec):
        spec["containers"][0]["resources"]["requests"] = {resource: "1"}
        spec["containers"][0]["resources"]["limits"] = {resource: "1"}

    return change


HOST = "kubernetes.io/hostname"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (selects(HOST, "nodee-0"), f"correct node label {HOST}=nodee-0 to node-0"),
        (
            selects("kubernetes.io/hostnam", "node-0"),
            f"correct node label kubernetes.io/hostnam to {HOST}",
        ),
        (requires(HOST, "node-00"), f"correct node label {HOST}=node-00 to node-0"),
        (
            asks("kubernetes.io/ephemeral-storage"),
            "correct resource kubernetes.io/ephemeral-storage to ephemeral-storage",
        ),
    ],
)
def test_names_of_nodes_are_corrected(change, text):
    cluster = simulated(queue("team", 8), edited(job("two", 2, "team"), change))
    found = first_suggestion(cluster, "two")
    assert found.text == text
    ApplySteps(found.steps).apply(cluster)
    cluster.settle(60)
    assert running(cluster) == {"two"}


def test_a_misspelt_queue_is_corrected_before_one_is_created():
    cluster = simulated(queue("team-a", 8), job("two", 2, "team-aa"))
    found = first_suggestion(cluster, "two")
    assert found.text == "use queue team-a instead of team-aa"
    assert "kubectl patch job" in found.steps[0].command
    ApplySteps(found.steps).apply(cluster)
    cluster.settle(60)
    assert running(cluster) == {"two"}


def test_a_misspelt_device_class_is_corrected_in_the_template():
    wrong = template()
    wrong["metadata"]["name"] = "wrong"
    wrong["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "gpu.nvidia.co"
    asking = job("two", 2, "team")
    claims = asking["spec"]["template"]["spec"]["resourceClaims"]
    claims[0]["resourceClaimTemplateName"] = "wrong"
    cluster = simulated(queue("team", 8), wrong, asking)
    found = first_suggestion(cluster, "two")
    assert found.text == (
        "correct DeviceClass gpu.nvidia.co to gpu.nvidia.com in ResourceClaimTemplate wrong"
    )
    ApplySteps(found.steps).apply(cluster)
    cluster.settle(60)
    assert running(cluster) == {"two"}
