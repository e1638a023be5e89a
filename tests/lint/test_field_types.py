"""Values of another type than the API's: what is meant is written, or the user decides."""

import pytest

from kai_py.api.manifests import read_documents
from kai_py.lint.manifest import at
from tests.support.linting import lint

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: ml}
spec:
  parallelism: 2
  template:
    metadata: {}
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: ubuntu
"""
TRAINING = f"""\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: train, namespace: ml}}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 1
      template:
        spec:{JOB.partition("    spec:")[2].replace(chr(10), chr(10) + "    ").rstrip()}
"""


@pytest.mark.parametrize("manifest", [JOB, TRAINING], ids=["Job", "PyTorchJob"])
@pytest.mark.parametrize(
    ("field", "written", "path", "corrected"),
    [
        ("env: [{name: A, value: %s}]", "1", ("env", 0, "value"), "1"),
        ("env: [{name: A, value: %s}]", "010", ("env", 0, "value"), "010"),
        ("env: [{name: A, value: %s}]", "1.10", ("env", 0, "value"), "1.10"),
        ("env: [{name: A, value: %s}]", "1e10", ("env", 0, "value"), "1e10"),
        ("env: [{name: A, value: %s}]", "True", ("env", 0, "value"), "true"),
        ("env: [{name: A, value: %s}]", "yes", ("env", 0, "value"), "yes"),
        ("args: [--lr, %s]", "0.10", ("args", 1), "0.10"),
        ("ports: [{containerPort: %s}]", '"8080"', ("ports", 0, "containerPort"), 8080),
        ("stdin: %s", '"true"', ("stdin",), True),
        ("securityContext: {runAsUser: %s}", "'0'", ("securityContext", "runAsUser"), 0),
    ],
)
def test_a_value_whose_meaning_is_clear_is_corrected(manifest, field, written, path, corrected):
    indent = manifest.splitlines()[-1].partition("image")[0]
    report = lint(manifest + indent + field % written + "\n")
    [error] = report.errors
    text = f'"{corrected}"' if isinstance(corrected, str) else str(corrected).lower()
    assert error.message.endswith(f": write {text}")
    assert error.fixed
    spec = read_documents(report.corrected)[0].value["spec"]
    template = at(spec, "template") or at(spec, "pytorchReplicaSpecs", "Worker", "template")
    value = at(template, "spec", "containers", 0, *path)
    assert (type(value), value) == (type(corrected), corrected)
    assert lint(report.corrected).errors == ()


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("command: sleep 9", "command: must be a list, is 'sleep 9'"),
        ("env: {A: b}", "env: must be a list, is a mapping"),
        (
            "ports: [{containerPort: http}]",
            "ports[0].containerPort: must be a whole number, is 'http'",
        ),
        (
            "ports: [{containerPort: 80.5}]",
            "ports[0].containerPort: must be a whole number, is 80.5",
        ),
        (
            f"ports: [{{containerPort: '{'9' * 5000}'}}]",
            f"ports[0].containerPort: must be a whole number, is '{'9' * 60}… (5000 characters)'",
        ),
        ("stdin: 1", "stdin: must be true or false, is 1"),
        ("image: [ubuntu]", "image: must be a string, is a list"),
        ("livenessProbe: tcp", "livenessProbe: must be a mapping of fields, is 'tcp'"),
    ],
)
def test_a_value_that_may_mean_anything_is_named(field, told):
    manifest = JOB if "image" not in field else JOB.replace("        image: ubuntu\n", "")
    [error] = lint(f"{manifest}        {field}\n").errors
    assert error.text("f").endswith(f"spec.template.spec.containers[0].{told}")
    assert not error.fixed


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("tolerations: {key: a}", "tolerations: must be a list, is a mapping"),
        (
            "terminationGracePeriodSeconds: 30s",
            "terminationGracePeriodSeconds: must be a whole number, is '30s'",
        ),
        (
            "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: []}}",
            "IgnoredDuringExecution: must be a mapping of fields, is a list",
        ),
    ],
)
def test_the_fields_that_schedulers_read_are_checked_too(field, told):
    found = lint(JOB.replace("      restart", f"      {field}\n      restart"))
    assert [error.text("f") for error in found.errors if told in error.text("f")]


@pytest.mark.parametrize(
    "field",
    [
        "resources: {limits: {cpu: 1, memory: 1e9, nvidia.com/gpu: 1}, requests: {cpu: '1'}}",
        "livenessProbe: {httpGet: {port: 80, path: /}}",
        "livenessProbe: {httpGet: {port: http, path: /}}",
        "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1}}}]",
        "args:",
        "env: [{name: A, value: null}]",
    ],
)
def test_amounts_ports_and_nothing_have_several_forms(field):
    assert lint(f"{JOB}        {field}\n").errors == ()


def test_numbers_among_labels_keep_their_spelling():
    report = lint(JOB.replace("metadata: {}", "metadata: {labels: {v: 1.10, sha: 1e10}}"))
    assert "{v: '1.10', sha: '1e10'}" in report.corrected.replace('"', "'")
