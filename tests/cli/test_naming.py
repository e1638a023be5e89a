"""Objects are named as for kubectl."""

import pytest
import typer

from kai_py.api.choices import Subject
from kai_py.cli.errors import CommandError
from kai_py.cli.naming import context_namespace, parse_subject

KUBECONFIG = """
current-context: here
contexts:
- {name: here, context: {cluster: c, namespace: ml}}
- {name: there, context: {cluster: c}}
- {name: odd, context: {cluster: c, namespace: [1]}}
- null
"""


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("job", "train"), (Subject.JOB, "ml/train")),
        (("job/train", ""), (Subject.JOB, "ml/train")),
        (("jobs", "train"), (Subject.JOB, "ml/train")),
        (("po", "train-0"), (Subject.POD, "ml/train-0")),
        (("ResourceClaims", "c"), (Subject.CLAIM, "ml/c")),
        (("job", "other/train"), (Subject.JOB, "other/train")),
        (("job/other/train", ""), (Subject.JOB, "other/train")),
        (("gang", "train"), (Subject.GANG, "ml/train")),
        (("gang", "Job/train"), (Subject.GANG, "ml/Job/train")),
        (("gang", "other/train"), (Subject.GANG, "other/train")),
        (("gang/other/Job/train", ""), (Subject.GANG, "other/Job/train")),
        (("queue", "team"), (Subject.QUEUE, "team")),
        (("job.batch/train", ""), (Subject.JOB, "ml/train")),
        (("queue.scheduling.kai.io/team", ""), (Subject.QUEUE, "team")),
        (("deployment.apps/web", ""), (Subject.WORKLOAD, "ml/deployment/web")),
        (("deploy", "web"), (Subject.WORKLOAD, "ml/deployment/web")),
        (("StatefulSets/other/db", ""), (Subject.WORKLOAD, "other/statefulset/db")),
        (("pytorchjob/train", ""), (Subject.WORKLOAD, "ml/pytorchjob/train")),
        (("workload/train", ""), (Subject.WORKLOAD, "ml/workload/train")),
        (("queues/team", ""), (Subject.QUEUE, "team")),
    ],
)
def test_every_form_names_the_same(arguments, meant):
    assert parse_subject(*arguments, namespace="ml") == meant


@pytest.mark.parametrize(
    "arguments", [("widget", "x"), ("job", ""), ("deploy", ""), ("", "x"), ("/", "")]
)
def test_what_is_no_name_is_refused(arguments):
    with pytest.raises(typer.BadParameter):
        parse_subject(*arguments, namespace="ml")


@pytest.mark.parametrize(
    ("context", "namespace"),
    [("", "ml"), ("here", "ml"), ("there", "default"), ("odd", "default"), ("gone", "default")],
)
def test_the_namespace_is_that_of_the_context(tmp_path, context, namespace):
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    assert context_namespace(str(path), context) == namespace


@pytest.mark.parametrize("text", ["", "[]", "}", "contexts: 5\ncurrent-context: x", "\x00"])
def test_a_broken_kubeconfig_is_reported_elsewhere(tmp_path, text):
    path = tmp_path / "config"
    path.write_text(text)
    assert context_namespace(str(path), "") == "default"


def test_a_kubeconfig_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(CommandError):
        context_namespace(str(tmp_path / "none"), "")
