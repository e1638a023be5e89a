"""Claims and devices that cannot be right are told where they are wrong, and stop nothing else."""

import pytest

from tests.cluster.claims.test_device_claims import (
    DRIVER,
    card,
    cards,
    claiming,
    exactly,
    given,
    nodes,
    pool,
    running,
    submit,
)
from tests.support.cluster.api import ApiError, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import claim, claim_template, pod, pod_spec
from tests.support.cluster.view import View

_ALL = f"device.attributes['{DRIVER}'].all"
TOO_COSTLY = f"{_ALL}(a, {_ALL}(b, {_ALL}(c, {_ALL}(d, a != b && c != d))))"


@pytest.fixture(autouse=True)
def told_soon(hasty: None) -> None:
    """What is wrong is told soon."""


async def slice_says(view: View, name: str, words: str) -> None:
    async def said() -> bool:
        notes = await view.events(kind="ResourceSlice", name=name, reason="InvalidObject")
        assert any(words in note for note in notes), notes
        return True

    await eventually(said, what=f"an event of slice {name}", within=20.0)


@pytest.mark.usefixtures("scheduler")
async def test_a_device_that_two_slices_list_is_not_given(cluster: Cluster, view: View):
    template = claim_template("one-gpu", exactly())
    async with cluster.run_nodes(nodes(2)):
        await submit(cluster, pool("node-0", cards(1), cards(1)), template)
        await cluster.submit(pod("first", claiming()))
        message = await view.wait_pending("first", 1, reason="Unschedulable")
        assert "invalid" in message, message
        await slice_says(view, "node-0-0", "card-0")
        await cluster.submit(*pool("node-1", cards(1)))
        await running(view, "first", 1)


@pytest.mark.usefixtures("scheduler")
async def test_a_pool_that_is_never_complete_is_not_used(cluster: Cluster, view: View):
    template = claim_template("one-gpu", exactly())
    [part, _] = pool("node-0", cards(1), {"devices": [card(1)]})
    async with cluster.run_nodes(nodes(2)):
        await submit(cluster, part, template)
        await cluster.submit(pod("first", claiming()))
        message = await view.wait_pending("first", 1, reason="Unschedulable")
        assert "incomplete" in message, message
        await slice_says(view, "node-0-0", "incomplete")
        await cluster.submit(*pool("node-1", cards(1)))
        await running(view, "first", 1)


@pytest.mark.usefixtures("scheduler")
async def test_an_attribute_of_another_type_than_a_selector_expects_is_told(
    cluster: Cluster, view: View
):
    text = f"device.attributes['{DRIVER}'].model > 3"
    wrong = claim("wrong", exactly(selectors=[{"cel": {"expression": text}}]))
    async with cluster.run_nodes(nodes()):
        await submit(cluster, pool("node-0", cards(1)), wrong, claim("right", exactly()))
        await cluster.submit(pod("first", pod_spec(claim="wrong")))
        message = await view.wait_pending("first", 1, reason="Unschedulable")
        assert "no device matches selector" in message, message
        assert text in message, message
        assert "no such overload" in message, message
        await cluster.submit(pod("second", pod_spec(claim="right")))
        await running(view, "second", 1)
        assert await eventually(lambda: told_of(view, "wrong"), what="an event") == [message]
        assert await told_of(view, "right") == []


async def told_of(view: View, name: str) -> list[str]:
    return await view.events(kind="ResourceClaim", name=name, reason="FailedAllocation")


@pytest.mark.usefixtures("scheduler")
async def test_counters_that_are_overdrawn_close_only_their_own_card(cluster: Cluster, view: View):
    def part(number: int, counter_set: str) -> Document:
        draws = [{"counterSet": counter_set, "counters": {"slots": {"value": "1"}}}]
        return card(number, counter_set, consumesCounters=draws)

    sets = [{"name": name, "counters": {"slots": {"value": "1"}}} for name in ("a", "b")]
    parts = [*(part(i, "a") for i in range(3)), part(3, "b")]
    of_a, of_b = claim("of-a", exactly(model="a")), claim("of-b", exactly(model="b"))
    async with cluster.run_nodes(nodes()):
        await submit(cluster, pool("node-0", {"sharedCounters": sets}, {"devices": parts}))
        for number in range(2):
            await cluster.submit(claim(f"foreign-{number}", exactly(model="a")))
            await allocate(cluster, view, f"foreign-{number}", f"card-{number}")
        await cluster.submit(of_a, pod("first", pod_spec(claim="of-a")))
        message = await view.wait_pending("first", 1, reason="Unschedulable")
        assert "counters" in message, message
        await cluster.submit(of_b, pod("second", pod_spec(claim="of-b")))
        await running(view, "second", 1)
        assert (await given(view))["second"] == ["card-3"]


async def allocate(cluster: Cluster, view: View, name: str, device: str) -> None:
    """What another scheduler writes, who does not count."""
    result = {"request": "card", "driver": DRIVER, "pool": "node-0", "device": device}
    path = f"{view.path('resourceclaims')}/{name}"
    await cluster.api.patch(
        path, {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
    )
    status = {"allocation": {"devices": {"results": [result]}}}
    await cluster.api.patch(f"{path}/status", {"status": status})


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("device.driver ==", "compilation failed"),
        ("device.driver", "must evaluate to bool"),
        ("device.nonsense == 1", "undefined field"),
        (TOO_COSTLY, "too complex, exceeds cost limit"),
    ],
    ids=["syntax", "type", "field", "cost"],
)
async def test_selectors_that_do_not_compile_or_cost_too_much_are_refused(
    cluster: Cluster, expression: str, words: str
):
    broken = claim("broken", exactly(selectors=[{"cel": {"expression": expression}}]))
    with pytest.raises(ApiError, match=words):
        await cluster.submit(broken)
