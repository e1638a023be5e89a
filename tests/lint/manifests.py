"""Manifests that the tests of lint begin with, and what lint says of them."""

import textwrap

from tests.support import yaml_text
from tests.support.linting import lint

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
    return yaml_text.read_all(report.corrected)
