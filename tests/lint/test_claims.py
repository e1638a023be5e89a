"""Claims, their templates and device classes that were almost right, and their valid form."""

import textwrap

import pytest
import yaml

from tests.lint.manifests import CLAIM, POD, errors, fixed, indented
from tests.support.linting import lint

REQUESTS = [
    ("flat", "- name: g\n  deviceClassName: c\n  count: 2\n",
     {"exactly": {"deviceClassName": "c", "count": 2}}),
    ("beside exactly", "- name: g\n  deviceClassName: c\n  exactly: {count: 2}\n",
     {"exactly": {"deviceClassName": "c", "count": 2}}),
    ("in both, equal", "- name: g\n  count: 2\n  exactly: {deviceClassName: c, count: 2}\n",
     {"exactly": {"deviceClassName": "c", "count": 2}}),
    ("in both, different", "- name: g\n  count: 1\n  exactly: {deviceClassName: c, count: 2}\n",
     {"exactly": {"deviceClassName": "c", "count": 2}}),
    ("everything flat",
     "- {name: g, deviceClassName: c, allocationMode: All, adminAccess: true,"
     " tolerations: [{operator: Exists}], capacity: {requests: {memory: 1Gi}}}\n",
     {"exactly": {"deviceClassName": "c", "allocationMode": "All", "adminAccess": True,
                  "tolerations": [{"operator": "Exists"}],
                  "capacity": {"requests": {"memory": "1Gi"}}}}),
    ("misspelt", "- name: g\n  exactly: {deviceclassname: c, selector: []}\n",
     {"exactly": {"deviceClassName": "c", "selectors": []}}),
    ("count as text", '- name: g\n  exactly: {deviceClassName: c, count: "2"}\n',
     {"exactly": {"deviceClassName": "c", "count": 2}}),
    ("mode in other case", "- name: g\n  exactly: {deviceClassName: c, allocationMode: all}\n",
     {"exactly": {"deviceClassName": "c", "allocationMode": "All"}}),
    ("count with All",
     "- name: g\n  exactly: {deviceClassName: c, allocationMode: All, count: 1}\n",
     {"exactly": {"deviceClassName": "c", "allocationMode": "All"}}),
    ("capacity without requests",
     "- name: g\n  exactly: {deviceClassName: c, capacity: {memory: 1Gi}}\n",
     {"exactly": {"deviceClassName": "c", "capacity": {"requests": {"memory": "1Gi"}}}}),
    ("qualified capacity",
     "- name: g\n  exactly: {deviceClassName: gpu.nvidia.com,"
     " capacity: {requests: {gpu.nvidia.com/memory: 1Gi}}}\n",
     {"exactly": {"deviceClassName": "gpu.nvidia.com",
                  "capacity": {"requests": {"memory": "1Gi"}}}}),
    ("alternatives with common fields",
     "- name: g\n  deviceClassName: c\n  firstAvailable: [{name: a, count: 2}, {name: b}]\n",
     {"firstAvailable": [{"name": "a", "count": 2, "deviceClassName": "c"},
                         {"name": "b", "deviceClassName": "c"}]}),
    *((f"alternatives with {own} and {common} in common",
       f"- name: g\n  tolerations: {common}\n  count: 2\n  firstAvailable:\n"
       f"  - {{name: a, deviceClassName: c, count: 3, tolerations: {own}}}\n",
       {"firstAvailable": [{"name": "a", "deviceClassName": "c", "count": 3,
                            "tolerations": yaml.safe_load(joined)}]})
      for own, common, joined in [
          ("[]", "[{key: a, operator: Exists}]", "[{key: a, operator: Exists}]"),
          ("[{operator: Exists}]", "[{key: a, operator: Exists}, {operator: Exists}]",
           "[{operator: Exists}, {key: a, operator: Exists}]")]),
    ("alternatives with exactly",
     "- name: g\n  firstAvailable: [{name: a, exactly: {deviceClassName: c}}]\n",
     {"firstAvailable": [{"name": "a", "deviceClassName": "c"}]}),
]  # fmt: skip


@pytest.mark.parametrize(("written", "meant"), [case[1:] for case in REQUESTS],
                         ids=[case[0] for case in REQUESTS])  # fmt: skip
def test_request(written, meant):
    text = CLAIM + indented(written, 4)
    assert errors(text)
    assert fixed(text)[0]["spec"]["devices"]["requests"] == [{"name": "g"} | meant]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_older_versions_become_v1(version):
    flat = CLAIM.replace("/v1\n", f"/{version}\n") + "    - {name: g, deviceClassName: c}\n"
    (claim,) = fixed(flat)
    assert claim["apiVersion"] == "resource.k8s.io/v1"
    assert claim["spec"]["devices"]["requests"] == [
        {"name": "g", "exactly": {"deviceClassName": "c"}}
    ]
    told = [error for error in errors(flat) if "deviceClassName" in error]
    assert bool(told) == (version == "v1beta2"), "flat fields are how v1beta1 is written"


def test_v1beta1_has_no_exactly():
    text = CLAIM.replace("/v1\n", "/v1beta1\n")
    text += "    - {name: g, exactly: {deviceClassName: c}}\n"
    assert any("v1beta1 has no exactly" in error for error in errors(text))
    assert fixed(text)[0]["spec"]["devices"]["requests"][0]["exactly"] == {"deviceClassName": "c"}


def test_selectors_in_both_places_are_joined():
    text = CLAIM + indented(
        """\
        - name: g
          selectors: [{cel: {expression: 'device.driver == "a"'}}]
          exactly:
            deviceClassName: c
            selectors: [{cel: {expression: 'true'}}]
        """,
        4,
    )
    exact = fixed(text)[0]["spec"]["devices"]["requests"][0]["exactly"]
    assert [item["cel"]["expression"] for item in exact["selectors"]] == [
        "true",
        'device.driver == "a"',
    ]


@pytest.mark.parametrize(
    "selectors",
    [
        "[{cel: {expression: 'true'}}]",
        "[{cel: 'true'}]",
        "[{expression: 'true'}]",
        "['true']",
        "{cel: {expression: 'true'}}",
    ],
)
def test_selector_forms(selectors):
    text = f"{CLAIM}    - {{name: g, exactly: {{deviceClassName: c, selectors: {selectors}}}}}\n"
    exact = fixed(text)[0]["spec"]["devices"]["requests"][0]["exactly"]
    assert exact["selectors"] == [{"cel": {"expression": "true"}}]


def test_a_count_of_zero_is_one_device():
    """SetDefaults_ExactDeviceRequest of k8s.io/api resource/v1: 0 is a count that is not given."""
    report = lint(CLAIM + "    - {name: g, exactly: {deviceClassName: c, count: 0}}\n")
    assert not report.errors
    messages = [found.message for found in report.findings]
    assert "0 is read as 1: write how many devices you need" in messages


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ("- {name: g}", "requests nothing"),
        ("- {name: g, exactly: {count: 1}}", "names no deviceClassName"),
        ("- {name: g, exactly: {deviceClassName: c, count: -1}}", "-1 devices are not possible"),
        (
            "- {name: g, exactly: {deviceClassName: c, count: true}}",
            "True devices are not possible",
        ),
        (
            "- {name: g, exactly: {deviceClassName: c, allocationMode: Some}}",
            "not an allocation mode",
        ),
        ("- {name: g, exactly: {deviceClassName: c, capacity: {requests: {m: 1X}}}}", "'1X' is no"),
        ("- {name: g, exactly: {deviceClassName: c}, firstAvailable: []}", "keep one"),
        (
            "- {name: g, exactly: {deviceClassName: c, zzz: 1}}",
            "no such field, kubectl rejects it and the API drops it",
        ),
        (
            "- {name: g, exactly: {deviceClassName: c, selectors: [{cel: {expression: 'a b'}}]}}",
            "the API rejects it: ERROR",
        ),
        (
            "- {name: g, exactly: {deviceClassName: c, selectors: [{cel: {expression: '1+1'}}]}}",
            "must evaluate to bool",
        ),
    ],
)
def test_what_only_the_user_can_decide_stays(written, part):
    report = lint(CLAIM + f"    {written}\n")
    assert any(part in found.message for found in report.unfixed)
    assert len(lint(report.corrected).errors) == len(report.unfixed)


def test_levels_of_claims_and_templates():
    template = CLAIM.replace("ResourceClaim\n", "ResourceClaimTemplate\n")
    request = "    - {name: g, exactly: {deviceClassName: c}}\n"
    (found,) = fixed(template + request)
    assert found["spec"]["spec"]["devices"]["requests"][0]["name"] == "g"
    nested = CLAIM.replace("spec:\n  devices", "spec:\n spec:\n  devices") + request
    assert fixed(nested)[0]["spec"]["devices"]["requests"][0]["name"] == "g"
    loose = CLAIM.replace("  devices:\n", "") + request
    assert fixed(loose)[0]["spec"]["devices"]["requests"][0]["name"] == "g"
    single = CLAIM + "      {name: g, exactly: {deviceClassName: c}}\n"
    assert fixed(single)[0]["spec"]["devices"]["requests"][0]["name"] == "g"


def device_class(name, expression):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def test_a_class_asks_for_its_driver_first():
    text = yaml.safe_dump(device_class("big", 'device.capacity["memory"].isInteger()'))
    (corrected,) = fixed(text)
    assert corrected["spec"]["selectors"][0]["cel"]["expression"] == (
        'device.driver == "gpu.nvidia.com" && device.capacity["gpu.nvidia.com"].memory.isInteger()'
    )
    guarded = device_class("big", 'has(device.attributes["gpu.nvidia.com"].uuid)')
    assert errors(yaml.safe_dump(guarded)) == []


def test_names_follow_the_driver_of_the_class_in_the_file():
    claim = CLAIM + indented(
        """\
        - name: g
          exactly:
            deviceClassName: mine
            selectors: [{cel: {expression: 'device.attributes["model"] == "a"'}}]
        """,
        4,
    )
    mine = yaml.safe_dump(device_class("mine", 'device.driver == "gpu.acme.com"'))
    found = fixed(claim + "---\n" + mine)[0]["spec"]["devices"]["requests"][0]["exactly"]
    assert found["selectors"][0]["cel"]["expression"] == (
        'device.attributes["gpu.acme.com"].model == "a"'
    )


@pytest.mark.parametrize("written", ["null", "5", "[g]"])
def test_a_claim_of_a_container_that_is_no_mapping_is_not_corrected(written):
    text = POD + "  resourceClaims: [{name: g, resourceClaimName: c}]\n"
    text += f"  containers: [{{name: a, image: b, resources: {{claims: [{written}]}}}}]\n"
    [error] = lint(text).errors
    assert error.field == "spec.containers[0].resources.claims[0]"
    assert error.message.startswith("must be a mapping with the name of a claim, is ")
    assert not error.fixed


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ("{limits: {memory: 4GB}}", "limits.memory: '4GB' is not a quantity: write 4G or 4Gi"),
        ("{requests: {memory: 4 gib}}", "requests.memory: '4 gib' is not a quantity: write 4Gi"),
        ("{requests: {memory: 64kb}}", "'64kb' is not a quantity: write 64k or 64Ki"),
        ("{limits: {cpu: 2 cores}}", "limits.cpu: '2 cores' is not a quantity"),
        ("{requests: {cpu: -1}}", "requests.cpu: -1 is less than 0, the API rejects it"),
        ("{limits: {nvidia.com/gpu: -1}}", "gpu: -1 is less than 0, the API rejects it"),
        ("{limits: {memory: 4Gi}, requests: {memory: 8Gi}}", "'8Gi' is above the limit, '4Gi'"),
        ("{limits: {cpu: 500m}, requests: {cpu: 1}}", "requests.cpu: 1 is above the limit, '500m'"),
        ("{limits: {gpu: 1}}", "gpu: the API rejects this resource: write nvidia.com/gpu"),
        ("{requests: {Memory: 4Gi}}", "Memory: the API rejects this resource: write memory"),
        ("{limits: {tpu: 1}}", "without a domain, only cpu, memory, ephemeral-storage exist"),
    ],
)
def test_amounts_that_the_api_rejects_are_told(resources, told):
    [error] = errors(POD + indented(f"containers: [{{name: a, resources: {resources}}}]\n", 2))
    assert told in error


@pytest.mark.parametrize(
    "resources",
    [
        "{limits: {memory: 4G, cpu: 1e3}, requests: {memory: 1Gi, cpu: 0.5}}",
        "{limits: {cpu: null}, requests: {memory: 8Gi, ephemeral-storage: '1.5Ti'}}",
        "{requests: {hugepages-2Mi: 2Mi}, limits: {hugepages-2Mi: 2Mi}}",
    ],
)
def test_amounts_that_the_api_accepts_are_not_told(resources):
    text = POD + indented(f"containers: [{{name: a, resources: {resources}}}]\n", 2)
    assert errors(text) == []


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ("{limits: {nvidia.com/gpu: 0.5}}", "gpu: 0.5 is not whole, the API rejects it: a part"),
        ("{limits: {amd.com/gpu: 500m}}", "'500m' is not whole, the API rejects it"),
        ("{limits: {nvidia.com/gpu: two}}", "'two' is not a quantity"),
        ("{limits: {nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: 2}}", "2 must be the same as"),
    ],
)
def test_device_amounts_that_the_api_rejects(resources, told):
    container = f"  containers: [{{name: c, image: i, resources: {resources}}}]\n"
    [error] = lint(POD + container).errors
    assert told in error.text("f")
    assert not error.fixed


def test_equal_device_amounts_may_be_spelt_differently():
    amounts = "{limits: {nvidia.com/gpu: '2'}, requests: {nvidia.com/gpu: 2}}"
    assert not lint(POD + f"  containers: [{{name: c, image: i, resources: {amounts}}}]\n").errors


def test_names_of_requests_and_domains_of_attributes():
    text = CLAIM + textwrap.indent(
        "- {name: My_GPU, exactly: {deviceClassName: gpu.nvidia.com}}\n", "    "
    )
    text += "    constraints:\n    - {matchAttribute: productName}\n    - {matchAttribute: other}\n"
    report = lint(text)
    told = [(error.message, error.fixed) for error in report.errors]
    assert told == [
        ("'My_GPU' is not a valid request name: lower-case letters, digits and '-' only", False),
        ("has no domain, the API rejects it: write gpu.nvidia.com/productName", True),
        ("has no domain, the API rejects it: write DRIVER/other", False),
    ]
    assert "matchAttribute: gpu.nvidia.com/productName" in report.corrected


def counted(*requests):
    """A claim with requests of the class gpu."""
    named = [{"name": f"r{number}", **each} for number, each in enumerate(requests)]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": named}},
    }
    return yaml.safe_dump(claim)


def exactly(**fields):
    return {"exactly": {"deviceClassName": "gpu.nvidia.com", **fields}}


def first_available(*counts):
    options = [
        {"name": f"o{number}", "deviceClassName": "gpu.nvidia.com", "count": count}
        for number, count in enumerate(counts)
    ]
    return {"firstAvailable": options}


@pytest.mark.parametrize(
    ("requests", "least"),
    [
        ((exactly(count=32),), 0),
        ((exactly(count=32), exactly()), 33),
        ((exactly(count=20), first_available(16, 13)), 33),
        ((exactly(count=20), first_available(16, 12)), 0),
        ((exactly(count=32), exactly(allocationMode="All")), 0),
    ],
)
def test_a_claim_gets_at_most_32_devices(requests, least):
    found = [message for message in errors(counted(*requests)) if "at most" in message]
    assert bool(found) == bool(least)
    assert all(f"at least {least} devices" in message for message in found)
