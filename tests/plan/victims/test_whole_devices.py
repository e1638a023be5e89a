"""Victims for claims for whole devices: counting free devices by kind is exact.

Every node has devices of two products; running pods have some of either, and the pods that wait ask
for devices of one product or of any.
"""

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.api.records.resource import ResourceSlice
from kai_py.plan.plan import Action
from kai_py.plan.victims.trials import TrialPlacements
from tests.support.examples import examples
from tests.support.scenario import (
    claim,
    claiming,
    cluster,
    device_class,
    device_slice,
    evicted,
    job,
    node,
    nominated,
    pod,
    queue,
)

ANY, SMALL, LARGE = "", "small", "large"


def mixed_slice(name: str, products, **fields) -> ResourceSlice:
    devices = [
        {"name": f"gpu-{i}", "attributes": {"productName": {"string": product}}, **fields}
        for i, product in enumerate(products)
    ]
    return device_slice(name, devices)


def selector(product: str) -> str:
    return f'device.attributes["gpu.nvidia.com"].productName == "{product}"' if product else ""


def waiting(pods: int, per_claim: int, product: str, *, named: bool = False):
    """A Job with a claim for each pod, made from a template, or ``named`` by the pod."""
    owner = job("high", pods, "team")
    yield owner
    for i in range(pods):
        name = f"high-{i}"
        owned_by = "" if named else name
        yield claim(f"{name}-gpu", per_claim, selector=selector(product), owner=owned_by)
        made = pod(name, 0, owner=owner, queue="team", priority=10, created=50)
        yield claiming(made, f"{name}-gpu", template=not named)


def running(name: str, at: str, devices):
    """A pod with a claim of its own, for ``devices``, positions on the node ``at``."""
    yield claim(
        f"{name}-gpu",
        len(devices),
        owner=name,
        held_by=[name],
        on=[(at, f"gpu-{i}") for i in devices],
    )
    yield claiming(pod(name, 0, queue="team", node=at), f"{name}-gpu")


@st.composite
def cases(draw):
    """Products by node; (node, positions of devices) of each running pod; the request.

    Only of a single pod is the claim that it names counted exactly.
    """
    products = {
        f"n{i}": draw(st.lists(st.sampled_from([SMALL, LARGE]), min_size=1, max_size=4))
        for i in range(draw(st.integers(1, 3)))
    }
    runs = []
    for name, there in products.items():
        positions = draw(st.permutations(range(len(there))))
        while positions:
            taken = draw(st.integers(1, 2))
            if draw(st.integers(0, 3)):
                runs.append((name, positions[:taken]))
            positions = positions[taken:]
    request = (
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.sampled_from([ANY, SMALL, LARGE])),
    )
    return products, runs, request, request[0] == 1 and draw(st.booleans())


def world(products, runs, request, named):
    # Consolidation may move a pod that is no victim, to make way for one that is.
    actions = (Action.ALLOCATE, Action.PREEMPT)
    made = cluster(device_class(), queue("team", 64), actions=actions)
    for name, there in products.items():
        made.add(node(name, 0), mixed_slice(name, there))
    for number, (name, devices) in enumerate(runs):
        made.add(*running(f"low{number}", name, devices))
    return made.add(*waiting(*request, named=named))


def fits(products, runs, request, named, gone) -> bool:
    pods, per_claim, product = request
    free = {name: dict(enumerate(there)) for name, there in products.items()}
    for number, (name, devices) in enumerate(runs):
        if f"low{number}" not in gone:
            for each in devices:
                del free[name][each]
    matching = (sum(product in (ANY, each) for each in there.values()) for there in free.values())
    return sum(devices // per_claim for devices in matching) >= pods


@settings(max_examples=examples(120), deadline=None, derandomize=True)
@given(cases())
def test_a_gang_starts_if_it_fits_and_every_victim_is_needed(case):
    _, runs, request, _ = case
    running_pods = {f"low{i}" for i in range(len(runs))}
    with patch.object(TrialPlacements, "fits", side_effect=AssertionError("counting is exact")):
        plan = world(*case).plan()
    gone = set(evicted(plan))
    if fits(*case, gone=()):
        assert plan.placements
        assert not gone
        return
    assert bool(plan.nominations) is fits(*case, gone=running_pods)
    if plan.nominations:
        assert len(nominated(plan)) == request[0]
        assert fits(*case, gone=gone)
        assert not [each for each in gone if fits(*case, gone=gone - {each})]


SHARED = {"allowMultipleAllocations": True}
TAINTED = {"taints": [{"key": "k", "value": "", "effect": "NoSchedule"}]}
BINDS = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}


def needed(products, per_claim, **fields):
    """What counting takes a claim to need, where there are such devices."""
    made = cluster(device_class(), queue("team", 64), node("n0", 0))
    made.add(mixed_slice("n0", products, **fields), *waiting(1, per_claim, ANY))
    made.plan()
    [gang] = made.snapshot().gangs.values()
    [use] = gang.members[0].shape.claims
    return made.devices.whole_claims.needed(use.spec)


@pytest.mark.parametrize("fields", [SHARED, TAINTED, BINDS], ids=["shared", "tainted", "binds"])
def test_other_devices_are_not_counted(fields):
    assert needed([SMALL, SMALL], 1) is not None
    assert needed([SMALL, SMALL], 1, **fields) is None


@pytest.mark.parametrize("per_claim", [33, 2**63 - 1])
def test_claims_for_more_devices_than_a_claim_may_have_are_not_counted(per_claim):
    assert needed([SMALL] * 40, 32) is not None
    assert needed([SMALL] * 40, per_claim) is None
