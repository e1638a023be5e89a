"""Published examples of drivers, each on slices as its driver publishes them.

Sources are repository and path. Requests, attributes, capacities and counters are those of the
example and of the driver's code, in our words; amounts and numbers of devices are ours. What is
expected is what the example says of itself. A row with ``because`` starts nothing on purpose: the
manifest asks for what its driver does not publish.

Expected of a pod, beside the forms of ``play``: "4 on 1" is four devices of one card, which is what
the first two parts of their names say.
"""

import re
from typing import Any

import pytest

from tests.dra.upstream import cpu_examples, demo_examples, nvidia_examples, vendor_examples
from tests.dra.upstream.play import Scenario, fits, play_through
from tests.dra.upstream.published import BECAUSE, PUBLISHED

MODULES = (nvidia_examples, demo_examples, vendor_examples, cpu_examples)
"""Each adds its rows when it is read."""


def as_expected(expected: str, found: str) -> bool:
    if match := re.fullmatch(r"(\d+) on (\d+)", expected):
        devices = found.partition(": ")[2].split()
        cards = {tuple(each.split("-")[:2]) for each in devices}
        return [len(devices), len(cards)] == [int(each) for each in match.groups()]
    return fits(expected, found)


@pytest.mark.parametrize("given", PUBLISHED, ids=lambda each: each.source)
def test_outcome(given: Scenario):
    found, world = play_through(given)
    differing = {p: found.get(p) for p, text in given.expect.items()
                 if not as_expected(text, found.get(p, ""))}  # fmt: skip
    assert differing == {}
    for claim in world.all("resourceclaims"):
        if claim.status.allocation is not None:
            assert passed_on(claim) == configured(given, claim)


def passed_on(claim: Any) -> list[bytes]:
    """Parameters in the allocation."""
    entries = claim.status.allocation.devices.config
    return [bytes(each.opaque.parameters) for each in entries]


def configured(given: Scenario, claim: Any) -> list[bytes]:
    """Parameters of the claim whose requests, or chosen alternatives, were allocated."""
    results = {each.request for each in claim.status.allocation.devices.results}
    chosen = results | {each.partition("/")[0] for each in results}
    return [
        bytes(each.opaque.parameters)
        for each in claim.spec.devices.config
        if not each.requests or chosen & set(each.requests)
    ]


def test_every_deviation_has_its_reason():
    """Only manifests at fault wait as a whole; other waiting pods are beyond the example's."""
    waiting = {each.source for each in PUBLISHED if all(t[0] == "!" for t in each.expect.values())}
    refused = ("gpu-taint-untolerated", "smoke-channel-injection", "(1Ti)", "(5 CPUs)")
    assert {s for s in waiting if not any(text in s for text in refused)} == BECAUSE.keys()
    assert len({each.source for each in PUBLISHED} - BECAUSE.keys()) >= 60
