"""Manifests as people write them: each rule with what it finds and what it makes of it."""

import textwrap

import pytest
import yaml

from kai_py.lint.check import lint_together
from tests.lint.manifests import CLAIM, JOB, POD, QUEUE, errors, fixed, hints, indented
from tests.support.linting import lint

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


@pytest.mark.parametrize("written", ['"1.5"', '"1e400"', '"nan"', ".inf"])
def test_a_value_that_is_no_number_of_the_field_stays_as_it_is(written):
    text = QUEUE + f"  deservedGPUs: 8\n  priority: {written}\n"
    [found] = lint(text).findings
    assert not found.fixed
    assert lint(text).corrected == text


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


def test_lists_in_lists_are_checked_like_their_objects():
    version = "scheduling.kai.io/v1alpha1"
    first, second, third = (
        {
            "apiVersion": version,
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"deservedGPUs": -1},
        }
        for name in "abc"
    )
    inner = {"apiVersion": "v1", "kind": "List", "items": [first]}
    of_kind = {"apiVersion": version, "kind": "QueueList", "items": [second, {}]}
    outer = {"apiVersion": "v1", "kind": "List", "items": [inner, of_kind, third]}
    found = errors(yaml.safe_dump(outer))
    assert [each.partition(": ")[2] for each in found] == [
        "spec.deservedGPUs: must be greater than or equal to 0"
    ] * 3


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


@pytest.mark.parametrize(
    ("label", "told"),
    [
        ("kai.scheduler/queue: team a", "queue: 'team a' is not a valid value of a label"),
        ("app: " + "a" * 64, "is not a valid value of a label: letters, digits, '-', '_' and '.'"),
        ("kai.scheduler/a/b: c", "'kai.scheduler/a/b' is not a valid key of a label"),
        ("7: c", ""),
        ("app: ''", ""),
    ],
)
@pytest.mark.parametrize("path", ["metadata", "spec.template.metadata"])
def test_labels_that_the_api_rejects(label, told, path):
    labels = f"{{labels: {{{label}}}}}"
    text = "apiVersion: example.com/v1\nkind: Thing\nmetadata: "
    if path == "metadata":
        text += f"{{name: t, {labels[1:]}\n"
    else:
        text += f"{{name: t}}\nspec: {{template: {{metadata: {labels}}}}}\n"
    found = [error.text("f") for error in lint(text).errors]
    assert [told in each and path in each for each in found] == ([True] if told else [])


@pytest.mark.parametrize(
    ("above", "told"),
    [
        ("spec: {nodeSelector: {gpu: %s}}", "spec.nodeSelector.gpu"),
        ("spec: {selector: {matchLabels: {gpu: %s}}}", "spec.selector.matchLabels.gpu"),
        ("spec: {a: {template: {metadata: {labels: {gpu: %s}}}}}", "metadata.labels.gpu"),
        ("spec: {a: {parameters: {matchLabels: {gpu: %s}}}}", ""),
        ("spec: {labels: {gpu: %s}}", ""),
    ],
)
@pytest.mark.parametrize(("written", "text"), [("true", "true"), ("1", "1"), ("a", "")])
def test_what_is_compared_with_labels_is_a_text(above, told, written, text):
    head = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: t}\n"
    report = lint(f"{head}{above % written}\n")
    expected = [f'{told}: must be a string: write "{text}"'] if told and text else []
    assert [each.text("f").split(": ", 2)[2] for each in report.errors] == [
        f"{'spec.a.template.' if 'template' in above else ''}{each}" for each in expected
    ]
    assert lint(report.corrected).errors == ()


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
