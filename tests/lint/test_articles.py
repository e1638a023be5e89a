"""Manifests in the spelling of articles end as valid ones of the same meaning; so do our examples.

The articles' manifests are no part of the project: they stand beside the tables of ``KAI_PY_DATA``.
"""

import pytest
import yaml

from kai_py.api.quantity import parse_quantity
from kai_py.api.queue import read_queue
from kai_py.dra.selectors.device import CELDevice
from kai_py.dra.selectors.selector import Selector, compile_selector
from kai_py.lint.check import lint_together
from tests.support import yaml_text
from tests.support.linting import lint
from tests.support.repository import ARTICLES, EXAMPLES, needs

WRITTEN = {path.name[:2]: path for path in sorted(ARTICLES.glob("*.yaml"))}
VALID = sorted(path for path in EXAMPLES.rglob("*.yaml") if path.parent.name != "scenarios")

needs_articles = needs(ARTICLES)


def corrected(number):
    report = lint(WRITTEN[number].read_text(encoding="utf-8"))
    assert report.unfixed == ()
    again = lint(report.corrected)
    assert again.corrected == report.corrected
    assert again.errors == ()
    return {document["kind"]: document for document in yaml_text.read_all(report.corrected)}


def original(number):
    documents = yaml_text.read_all(WRITTEN[number].read_text(encoding="utf-8"))
    return {document["kind"]: document for document in documents}


def requests_of(document):
    spec = document["spec"].get("spec", document["spec"])
    return [request["exactly"] for request in spec["devices"]["requests"]]


def selectors_of(fields):
    return [selector["cel"]["expression"] for selector in fields.get("selectors", ())]


def device(product="NVIDIA H100 80GB HBM3", memory="81559Mi", *, shared=False, **attributes):
    return CELDevice(
        driver="gpu.nvidia.com",
        attributes={"type": "gpu", "productName": product, **attributes},
        capacity={"memory": parse_quantity(memory)},
        allow_multiple_allocations=shared,
    )


def matching(selectors, devices):
    compiled = [compile_selector(text) for text in selectors]
    assert all(isinstance(selector, Selector) for selector in compiled), compiled
    return [all(selector.matches(each) for selector in compiled) for each in devices]


@needs_articles
def test_queue_template_and_job():
    found = corrected("01")
    assert {kind: found[kind]["apiVersion"] for kind in found} == {
        "Queue": "scheduling.kai.io/v1alpha1",
        "DeviceClass": "resource.k8s.io/v1",
        "ResourceClaimTemplate": "resource.k8s.io/v1",
        "Job": "batch/v1",
    }
    for kind in ("Queue", "Job"):
        assert found[kind] == original("01")[kind]
    (request,) = requests_of(found["ResourceClaimTemplate"])
    assert request["deviceClassName"] == "gpu.nvidia.com"
    devices = [device(), device("NVIDIA H100 PCIe", "70Gi"), device("NVIDIA A100-SXM4-80GB")]
    assert matching(selectors_of(request), devices) == [True, False, False]


@needs_articles
def test_class_by_memory():
    found = corrected("02")
    assert requests_of(found["ResourceClaim"]) == [
        {"deviceClassName": "high-memory-gpu", "count": 1}
    ]
    selectors = selectors_of(found["DeviceClass"]["spec"])
    devices = [device(), device(memory="40Gi"), CELDevice(driver="other.example.com")]
    assert matching(selectors, devices) == [True, False, False]
    assert found["Pod"] == original("02")["Pod"]


@needs_articles
def test_claim_by_memory():
    found = corrected("03")
    (request,) = requests_of(found["ResourceClaim"])
    devices = [device(), device(memory="40Gi"), device(memory="40959Mi")]
    assert matching(selectors_of(request), devices) == [True, True, False]


@needs_articles
def test_template_and_deployment():
    found = corrected("04")
    (request,) = requests_of(found["ResourceClaimTemplate"])
    assert request["allocationMode"] == "ExactCount"
    assert request["count"] == 1
    assert request["deviceClassName"] == "gpu.nvidia.com"
    assert matching(selectors_of(request), [device(), device(memory="40Gi")]) == [True, False]
    assert found["Deployment"] == original("04")["Deployment"]


@needs_articles
def test_partition():
    (request,) = requests_of(corrected("05")["ResourceClaim"])
    assert request["deviceClassName"] == "mig.nvidia.com"
    devices = [device(profile="1g.10gb"), device(profile="2g.20gb")]
    assert matching(selectors_of(request), devices) == [True, False]


@needs_articles
def test_a_valid_manifest_stays_as_it_is():
    text = WRITTEN["06"].read_text(encoding="utf-8")
    assert lint(text).corrected == text
    (request,) = requests_of(corrected("06")["ResourceClaim"])
    assert matching(selectors_of(request), [device(), device(shared=True)]) == [False, True]


@needs_articles
def test_clique_set_is_mapped_field_by_field():
    text = WRITTEN["07"].read_text(encoding="utf-8")
    told = " ".join(found.message for found in lint(text).errors)
    for today in (
        "spec.template.cliques",
        "spec.template.cliqueStartupType",
        "spec.template.podCliqueScalingGroups",
        "spec.podSpec",
        "spec.replicas",
    ):
        assert today in told
    spec = corrected("07")["PodCliqueSet"]["spec"]
    template = spec["template"]
    assert spec.keys() == {"replicas", "template"}
    assert template["cliqueStartupType"] == "CliqueStartupTypeInOrder"
    cliques = {clique["name"]: clique["spec"] for clique in template["cliques"]}
    assert [(name, it["replicas"]) for name, it in cliques.items()] == [
        ("prefill-clique", 1),
        ("decode-clique", 2),
    ]
    assert all(
        clique["podSpec"].keys() == {"resourceClaims", "containers"} for clique in cliques.values()
    )
    (group,) = template["podCliqueScalingGroups"]
    assert group["cliqueNames"] == list(cliques)
    assert group["scaleConfig"] == {"minReplicas": 1, "maxReplicas": 8}


def test_a_start_order_of_some_cliques_is_explicit():
    text = yaml.safe_dump(
        {
            "apiVersion": "grove.io/v1alpha1",
            "kind": "PodCliqueSet",
            "metadata": {"name": "s", "namespace": "n"},
            "spec": {
                "startupOrder": ["a", "b"],
                "podCliques": [
                    {"name": name, "containers": [{"name": "x"}]} for name in ("c", "b", "a")
                ],
            },
        }
    )
    (document,) = yaml_text.read_all(lint(text).corrected)
    template = document["spec"]["template"]
    assert template["cliqueStartupType"] == "CliqueStartupTypeExplicit"
    starts = {it["name"]: it["spec"].get("startsAfter") for it in template["cliques"]}
    assert starts == {"c": None, "b": ["a"], "a": None}


SET = """\
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: s, namespace: n}
spec:
  podCliques:
  - name: a
    minReplicas: 1
    containers: [{name: c, image: i}]
"""
CLIQUE, CONTAINERS = "    minReplicas: 1\n", "containers: [{name: c, image: i}]"


@pytest.mark.parametrize(
    ("old", "new", "undecided"),
    [
        ("podCliques", "scaling: {maxReplicas: 2}\n  podCliques", ""),
        (CLIQUE, "    spec: 5\n", "spec: must be a mapping"),
        (CLIQUE, "    spec: {podSpec: [5]}\n", "spec.podSpec: must be a mapping"),
        ("podCliques", "template: [5]\n  podCliques", "spec.template: must be a mapping"),
        (CLIQUE, "    minReplicas: 1\n    minAvailable: 2\n", "has another value: keep one"),
        (CONTAINERS, "podSpec: {containers: [{name: c}]}\n    scheduler: x\n    role: r", ""),
    ],
)
def test_a_field_with_two_faults_is_corrected_in_one_run(old, new, undecided):
    report = lint(SET.replace(old, new, 1))
    told = [f"{each.field}: {each.message}" for each in report.unfixed]
    assert [undecided in each for each in told] == [True] * bool(undecided)
    again = lint(report.corrected)
    assert again.corrected == report.corrected
    assert [each.message for each in again.errors] == [each.message for each in report.unfixed]


def test_a_rule_that_ends_at_an_odd_value_does_the_rest_in_the_same_run():
    """The name is no text, as those of the order are; the scaling comes after it."""
    text = SET.replace("  podCliques", '  startupOrder: ["1"]\n  scaling: {}\n  podCliques')
    report = lint(text.replace("name: a", "name: 1").replace("scaling: {}", "scaling: {x: 1}"))
    again = lint(report.corrected)
    assert again.corrected == report.corrected
    assert [each.message for each in again.errors] == [each.message for each in report.unfixed]


def test_a_set_is_written_for_the_version_that_is_served():
    text = "apiVersion: grove.io/v1\nkind: PodCliqueSet\nmetadata: {name: s, namespace: n}\n"
    report = lint(text + "spec: {replicas: 1, template: {cliques: []}}\n")
    assert "grove.io/v1 is not served: write grove.io/v1alpha1" in report.errors[0].message
    (document,) = yaml_text.read_all(report.corrected)
    assert document["apiVersion"] == "grove.io/v1alpha1"


def test_examples_are_valid_and_complete():
    assert len(VALID) >= 8
    reports = lint_together([path.read_text(encoding="utf-8") for path in VALID])
    assert [found for report in reports for found in report.findings] == []


def test_example_queues_and_selectors_are_accepted():
    documents = [
        document
        for path in VALID
        for document in yaml_text.read_all(path.read_text(encoding="utf-8"))
    ]
    queues = [document for document in documents if document["kind"] == "Queue"]
    assert len(queues) == 2
    for queue in queues:
        read_queue(queue, unknown="forbid")
    (template,) = [
        document
        for document in documents
        if document["metadata"]["name"] == "h100-gpu-claim"
        and document["metadata"]["namespace"] == "team-a"
    ]
    (request,) = requests_of(template)
    devices = [device(), device("NVIDIA GH200 480GB", "96Gi")]
    assert matching(selectors_of(request), devices) == [True, False]
