"""Thousands of different rules between pods: what finds them costs what they select."""

import pytest

from tests.support.admitted_work import GPUS, pod, world
from tests.support.cpu_limit import cpu_limit
from tests.support.patience import processor_seconds
from tests.support.poison.process import Process

PODS = 2000
SMALL = {"name": "main"}


def apart(number: int, operator: str, **more) -> dict:
    """Required anti-affinity to pods that no other term selects, or to nearly all."""
    values = {"values": [f"v{number}"]} if operator == "NotIn" else {}
    wanted = {"key": f"key-{number}", "operator": operator, **values}
    term = {"topologyKey": f"zone-{number % 50}", "labelSelector": {"matchExpressions": [wanted]}}
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": [term | more]}
    return {"affinity": {"podAntiAffinity": rules}}


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["Exists", "NotIn", "DoesNotExist"])
@pytest.mark.parametrize("more", [{}, {"namespaceSelector": {}}], ids=["own", "all"])
def test_another_tenant_starts_beside_thousands_of_different_terms(operator, more):
    process = Process()
    process.put(*world(4))
    with cpu_limit(processor_seconds(4.0)):
        process.put(*(pod(f"p-{n}", "mine", **apart(n, operator, **more)) for n in range(PODS)))
        process.put(pod("other", "owner"))
        plan = process.cycle()
    assert "other" in {each.pod.name for gang in plan.placements for each in gang.pods}


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["NotIn", "DoesNotExist"])
def test_tenants_start_beside_thousands_of_pods_that_refuse_nearly_all(operator):
    process = Process()
    process.put(*world(4))
    names = process.planner.freeze(process.now).nodes.names
    with cpu_limit(processor_seconds(4.0)):
        for number in range(PODS):
            rules = apart(number, operator, namespaceSelector={}) | {"containers": [SMALL]}
            process.put(pod(f"p-{number}", "mine", nodeName=names[number % len(names)], **rules))
        process.put(*(pod(f"o-{n}", "owner", labels={"app": f"a{n}"}) for n in range(GPUS)))
        process.cycle()
        process.put(pod("late", "owner", labels={"app": "late"}))
        process.cycle()
