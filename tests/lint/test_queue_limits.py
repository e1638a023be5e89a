"""Selectors of a queue's limits are compiled as the scheduler compiles them."""

import pytest

from tests.support.linting import lint

QUEUE = """
apiVersion: scheduling.kai.io/v1alpha1
kind: Queue
metadata: {{name: team}}
spec:
  deservedGPUs: 8
  limits:
  - {{selector: '{}', max: 4}}
"""


@pytest.mark.parametrize(
    ("selector", "problem"),
    [
        ('device.driver == "gpu.nvidia.com"', ""),
        ("device.model == 1", "undefined field"),
        ("device.driver", "bool"),
    ],
)
def test_selectors_of_limits_are_checked(selector: str, problem: str):
    found = [each.message for each in lint(QUEUE.format(selector)).findings]
    assert not found if not problem else problem in " ".join(found)
