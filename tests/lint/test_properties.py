"""Whatever mixture of spellings: corrected once is corrected, and nothing asked for is lost."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.linting import lint

EXPRESSIONS = st.sampled_from(
    [
        'device.driver == "gpu.nvidia.com"',
        'device.capacity["memory"].isGreaterThan(quantity("40Gi"))',
        "device.attributes['gpu.nvidia.com'].memory >= 40*1024*1024*1024",
        'device.attributes["gpu.nvidia.com"].productName.startsWith("H100")',
        "device.memory >= 40Gi and device.productName == 'A100'",
        "device.allowMultipleAllocations == true",
    ]
)
SELECTORS = st.lists(EXPRESSIONS.map(lambda text: {"cel": {"expression": text}}), max_size=2)
FIELDS = {
    "deviceClassName": st.sampled_from(["gpu.nvidia.com", "mig.nvidia.com", "mine"]),
    "count": st.integers(1, 8),
    "allocationMode": st.sampled_from(["ExactCount", "exactCount"]),
    "selectors": SELECTORS,
    "capacity": st.just({"requests": {"memory": "10Gi"}}),
}


@st.composite
def claims(draw):
    """Give a claim whose request has each field on itself, under exactly, or not at all."""
    request, exactly, asked = {"name": "gpu"}, {}, {}
    for key, values in FIELDS.items():
        places = draw(st.sampled_from([(request,), (exactly,), (request, exactly), ()]))
        value = draw(values)
        if key == "deviceClassName":
            places = places or (exactly,)
        for place in places:
            place[key] = value
            asked[key] = value
    if exactly:
        request["exactly"] = exactly
    version = draw(st.sampled_from(["v1", "v1beta2", "v1beta1"]))
    document = {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "n"},
        "spec": {"devices": {"requests": [request]}},
    }
    return document, asked


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(claims(), st.sampled_from([None, False, True]))
def test_every_field_asked_for_ends_under_exactly(drawn, flow):
    document, asked = drawn
    report = lint(yaml.safe_dump(document, default_flow_style=flow, sort_keys=False))
    again = lint(report.corrected)
    assert again.corrected == report.corrected
    assert again.errors == ()
    (request,) = yaml.safe_load(report.corrected)["spec"]["devices"]["requests"]
    assert request.keys() == {"name", "exactly"}
    exactly = request["exactly"]
    assert exactly.keys() == asked.keys()
    assert len(exactly.get("selectors", ())) >= len(
        {selector["cel"]["expression"] for selector in asked.get("selectors", ())}
    )
    for key in ("deviceClassName", "count", "capacity"):
        assert exactly.get(key) == asked.get(key)


@settings(max_examples=examples(100), deadline=None)
@given(claims())
def test_findings_point_into_the_file(drawn):
    text = "# head\n---\n" + yaml.safe_dump(drawn[0], sort_keys=False)
    lines = text.count("\n")
    for found in lint(text).findings:
        assert 3 <= found.line <= lines
        assert "\n" not in found.text("f")
