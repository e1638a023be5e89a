"""Manifests as people write them: each rule with what it finds and what it makes of it."""

import textwrap

import pytest
import yaml

from kai_py.lint.check import lint, lint_together

CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: n}
spec:
  devices:
    requests:
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: n}
spec:
  schedulerName: kai-scheduler
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: j
  namespace: n
  annotations: {scheduling.kai.io/queue-name: q}
spec:
  template:
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      containers: [{name: c, image: i}]
"""
QUEUE = """\
apiVersion: scheduling.kai.io/v1alpha1
kind: Queue
metadata: {name: q}
spec:
"""


def indented(text, width):
    return textwrap.indent(textwrap.dedent(text), " " * width)


def errors(text):
    return [f"{found.line}: {found.field}: {found.message}" for found in lint(text).errors]


def hints(text):
    report = lint(text)
    return [found.message for found in report.findings if found not in report.errors]


def fixed(text):
    """Give the corrected documents; whatever was said to be fixed is."""
    report = lint(text)
    again = lint(report.corrected)
    assert again.corrected == report.corrected
    assert len(again.errors) == len(report.unfixed), again.errors
    return list(yaml.safe_load_all(report.corrected))


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


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ("- {name: g}", "requests nothing"),
        ("- {name: g, exactly: {count: 1}}", "names no deviceClassName"),
        ("- {name: g, exactly: {deviceClassName: c, count: 0}}", "0 devices are not possible"),
        (
            "- {name: g, exactly: {deviceClassName: c, allocationMode: Some}}",
            "not an allocation mode",
        ),
        ("- {name: g, exactly: {deviceClassName: c, capacity: {requests: {m: 1X}}}}", "'1X' is no"),
        ("- {name: g, exactly: {deviceClassName: c}, firstAvailable: []}", "keep one"),
        ("- {name: g, exactly: {deviceClassName: c, zzz: 1}}", "no such field, it is dropped"),
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


PODS = [
    ("a claim by a near name",
     "resourceClaims: [{name: gpu, resourceClaimName: c}]\n"
     "containers: [{name: a, resources: {claims: [{name: gpus}]}}]",
     lambda pod: pod["containers"][0]["resources"]["claims"] == [{"name": "gpu"}]),
    ("claims as texts",
     "resourceClaims: [{name: gpu, resourceClaimName: c}]\n"
     "containers: [{name: a, resources: {claims: [gpu]}}]",
     lambda pod: pod["containers"][0]["resources"]["claims"] == [{"name": "gpu"}]),
    ("claims beside resources",
     "resourceClaims: [{name: gpu, resourceClaimName: c}]\n"
     "containers:\n- name: a\n  claims: [{name: gpu}]",
     lambda pod: pod["containers"][0]["resources"] == {"claims": [{"name": "gpu"}]}),
    ("the older source",
     "resourceClaims: [{name: gpu, source: {resourceClaimTemplateName: t}}]\n"
     "containers: [{name: a, resources: {claims: [{name: gpu}]}}]",
     lambda pod: pod["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "t"}]),
    ("an extended resource in requests only",
     "containers: [{name: a, resources: {requests: {cpu: 1, nvidia.com/gpu: 2}}}]",
     lambda pod: pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("written", "holds"), [case[1:] for case in PODS],
                         ids=[case[0] for case in PODS])  # fmt: skip
def test_pod(written, holds):
    text = POD + indented(written, 2)
    assert errors(text)
    assert holds(fixed(text)[0]["spec"])


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ("resourceClaims: [{name: gpu}]", "needs exactly one of"),
        ("resourceClaims: [{resourceClaimName: c}]", "has no name"),
        (
            "containers: [{name: a, resources: {claims: [{name: x}]}}]",
            "x is not a claim of this pod",
        ),
    ],
)
def test_a_pod_that_cannot_be_corrected(written, part):
    text = POD + indented(written + "\n", 2)
    text += "" if "containers" in written else "  containers: [{name: a}]\n"
    assert any(part in error for error in errors(text))


def test_jobs_restart_policy():
    missing = JOB.replace("      restartPolicy: Never\n", "")
    assert fixed(missing)[0]["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    always = JOB.replace("Never", "Always")
    assert fixed(always)[0]["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert errors(JOB) == []


def test_fields_of_the_pod_on_the_job():
    text = JOB.replace("      schedulerName: kai-scheduler\n", "").replace(
        "spec:\n  template", "spec:\n  schedulerName: kai-scheduler\n  template"
    )
    (job,) = fixed(text)
    assert job["spec"]["template"]["spec"]["schedulerName"] == "kai-scheduler"
    assert "schedulerName" not in job["spec"]


def test_a_queue_without_our_scheduler_is_not_regarded():
    text = JOB.replace("      schedulerName: kai-scheduler\n", "")
    assert any("queue is ignored" in error for error in errors(text))
    assert fixed(text)[0]["spec"]["template"]["spec"]["schedulerName"] == "kai-scheduler"


def test_deployment_selector():
    text = """\
apiVersion: extensions/v1beta1
kind: Deployment
metadata: {name: d, namespace: n, labels: {tier: 1}}
spec:
  template:
    metadata: {labels: {app: d}}
    spec: {containers: [{name: c}], restartPolicy: Never}
"""
    (deployment,) = fixed(text)
    assert deployment["apiVersion"] == "apps/v1"
    assert deployment["spec"]["selector"] == {"matchLabels": {"app": "d"}}
    assert deployment["spec"]["template"]["spec"]["restartPolicy"] == "Always"
    assert deployment["metadata"]["labels"] == {"tier": "1"}
    wrong = lint(text.replace("  template:", "  selector: {matchLabels: {app: x}}\n  template:"))
    assert any("not a label of the pods" in found.message for found in wrong.unfixed)


def test_queue_fields():
    text = QUEUE + '  deservedGpus: "8"\n  maxGPU: 16 # ceiling\n'
    report = lint(text)
    assert report.unfixed == ()
    assert fixed(text)[0]["spec"] == {"deservedGPUs": 8, "maxGPUs": 16}
    assert "maxGPUs: 16 # ceiling" in report.corrected


def test_queue_rules_and_namespace():
    text = (
        QUEUE.replace("{name: q}", "{name: q, namespace: n}") + "  deservedGPUs: 8\n  maxGPUs: 2\n"
    )
    assert [error.partition(": ")[2] for error in errors(text)] == [
        "metadata.namespace: Queue belongs to no namespace, the API drops this",
        "spec: maxGPUs must be at least deservedGPUs (leave maxGPUs out for no limit)",
    ]
    assert fixed(text)[0]["metadata"] == {"name": "q"}


@pytest.mark.parametrize("key", ["scheduling.kai.io/queue", "scheduling.kai.io/queueName"])
def test_misspelt_queue_keys(key):
    text = JOB.replace("scheduling.kai.io/queue-name", key)
    (job,) = fixed(text)
    assert job["metadata"]["annotations"] == {"scheduling.kai.io/queue-name": "q"}


def test_kai_label_written_as_annotation():
    (job,) = fixed(JOB.replace("scheduling.kai.io/queue-name", "kai.scheduler/queue"))
    assert job["metadata"]["labels"] == {"kai.scheduler/queue": "q"}
    assert "annotations" not in job["metadata"]


def test_queue_named_where_no_pods_are():
    text = CLAIM.replace(
        "{name: c, namespace: n}",
        "{name: c, namespace: n, annotations: {scheduling.kai.io/queue-name: q}}",
    )
    text += "    - {name: g, exactly: {deviceClassName: c}}\n"
    assert any("name the queue on the workload" in error for error in errors(text))


def test_queue_that_does_not_admit_the_namespace():
    queue = QUEUE + "  namespaces: {names: [other]}\n"
    assert any("does not admit namespace n" in error for error in errors(queue + "---\n" + JOB))


def test_hints_about_what_is_elsewhere():
    pod = POD + indented(
        """\
        resourceClaims: [{name: gpu, resourceClaimTemplateName: t}]
        containers: [{name: a, resources: {claims: [{name: gpu}]}}]
        """,
        2,
    )
    assert any(
        "ResourceClaimTemplate t is not among these manifests" in hint for hint in hints(pod)
    )
    template = (
        (CLAIM + "    - {name: g, exactly: {deviceClassName: c}}\n")
        .replace("ResourceClaim\nmetadata: {name: c", "ResourceClaimTemplate\nmetadata: {name: t")
        .replace("spec:\n  devices:\n    requests:\n    -", "spec: {spec: {devices: {requests: [")
    )
    template = template.replace("}}\n", "}}]}}}\n")
    assert not any("Template t is not" in hint for hint in hints(pod + "---\n" + template))
    other = template.replace("namespace: n", "namespace: m")
    assert any("they must be in one" in error for error in errors(pod + "---\n" + other))
    assert any("DeviceClass c is not among" in hint for hint in hints(template))
    assert any("namespace n is not among" in hint for hint in hints(template))


def test_files_given_together_may_name_one_another():
    reports = lint_together([QUEUE + "  {}\n", JOB])
    assert not any("queue q" in found.message for found in reports[1].findings)
    other = lint_together(
        [QUEUE.replace("name: q", "name: team-b") + "  {}\n", JOB.replace(": q}", ": team_b}")]
    )[1]
    assert any("did you mean team-b?" in found.message for found in other.findings)


def test_text_that_is_no_manifest():
    assert errors("a: [") == [
        "1: : is not YAML: expected the node content, but found '<stream end>'"
    ]
    assert "render it first" in errors("a: {{ .Values.x }}: {{ y }}")[0]
    assert errors("- 1\n") == [
        "1: : is not an object of the API: a mapping with apiVersion and kind"
    ]
    assert errors("") == []
    twice = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  name: b\n"
    assert errors(twice) == ["5: name: is set twice in one mapping: the first one is lost"]


def test_a_list_of_objects_is_checked_like_the_objects():
    items = [yaml.safe_load(JOB.replace("      restartPolicy: Never\n", ""))]
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})
    (found,) = fixed(text)
    assert found["items"][0]["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"


def test_objects_of_unknown_kinds_are_left_alone():
    text = "apiVersion: example.com/v9\nkind: Thing\nmetadata: {name: t}\nspec: {a: [1, {b: 2}]}\n"
    report = lint(text)
    assert report.findings == ()
    assert report.corrected == text


@pytest.mark.parametrize("junk", ["1", "[]", "text", "{a: [1]}", "null"])
@pytest.mark.parametrize("path", ["spec", "metadata", "spec.devices", "spec.devices.requests"])
@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate", "Queue", "Job", "Pod"])
def test_no_shape_breaks_the_rules(kind, path, junk):
    groups = {"Queue": "scheduling.kai.io/v1alpha1", "Job": "batch/v1", "Pod": "v1"}
    text = f"apiVersion: {groups.get(kind, 'resource.k8s.io/v1')}\nkind: {kind}\n"
    for depth, part in enumerate(path.split(".")):
        text += f"{'  ' * depth}{part}:\n"
    text = text[:-1] + f" {junk}\n"
    report = lint(text)
    assert report.errors or kind == "Pod"
    lint(report.corrected)


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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("apiVersion: 1\nkind: Pod\nmetadata: {name: p}\n", "apiVersion: must be a string, is 1"),
        (POD.replace("spec:", "spec: x\nx:"), "spec: must be a mapping of fields, is 'x'"),
        (POD + "  containers: web\n", "spec.containers: must be a list, is 'web'"),
        (POD + "  containers: [web]\n", "spec.containers[0]: must be a mapping of fields, is"),
        (CLAIM + "    - gpu\n", "spec.devices.requests[0]: must be a mapping of fields, is 'gpu'"),
    ],
)
def test_values_of_a_wrong_shape(text, told):
    assert told in "\n".join(error.text("f") for error in lint(text).errors)


def test_fields_of_other_kinds_have_the_shapes_they_have():
    text = "apiVersion: argoproj.io/v1\nkind: Workflow\nmetadata: {name: w, namespace: n}\n"
    assert not lint(text + "spec: {template: named, containers: all}\n").errors


def test_anchors_that_multiply_are_refused_in_no_time():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    [finding] = lint("\n".join(lines)).findings
    assert "expand to more than" in finding.message


@pytest.mark.slow
def test_a_text_nested_without_end_is_one_finding():
    [finding] = lint("[" * 20_000).findings
    assert "nested too deeply" in finding.message


def test_a_field_beside_a_merged_one_is_no_repetition():
    text = CLAIM + textwrap.indent(
        "- &first\n  name: a\n  exactly: {deviceClassName: gpu.nvidia.com}\n"
        "- <<: *first\n  name: b\n",
        "    ",
    )
    assert not lint(text).errors


@pytest.mark.parametrize(
    ("written", "misspelt", "meant"),
    [
        (JOB, "  paralelism: 2\n  template:", "parallelism"),
        (JOB, "  template:\n    sepc: {}", None),
        (POD, "  nodeSelecter: {a: b}\n  schedulerName:", "nodeSelector"),
        (POD, "  containers: [{name: c, image: i, resource: {}}]\n  schedulerName:", "resources"),
    ],
)
def test_a_field_that_the_api_does_not_have_is_found(written, misspelt, meant):
    at = misspelt.splitlines()[-1] if meant else "  template:"
    report = lint(written.replace(at, misspelt, 1))
    [found] = [each for each in report.errors if "no such field" in each.message]
    assert found.fixed is (meant is not None)
    assert meant is None or f"write {meant}" in found.message
    assert meant is None or meant in report.corrected


def test_fields_and_annotations_of_every_kind_are_left_alone():
    assert not [each for each in lint(JOB).errors if "field" in each.message]


def test_names_that_are_almost_ours_are_found():
    text = JOB.replace("queue-name", "queue-nmae").replace("kai-scheduler", "kai-schduler")
    report = lint(text.replace("image: i", "image: i, resources: {limits: {nvidia.com/gpus: 1}}"))
    told = "\n".join(each.message for each in report.findings)
    assert "write scheduling.kai.io/queue-name" in told
    assert "kai-scheduler?" in told
    assert "nvidia.com/gpu?" in told
    assert "queue-name: q" in report.corrected
