"""Where a bound of a queue is written, in which unit."""

import msgspec
import pytest

from kai_py.api.queue import read_queue
from kai_py.api.records.kai import KaiQueue
from kai_py.dialects.kai.queues import kai_queue_info
from kai_py.embedded.patches import apply_merge_patch
from kai_py.simulate.remedies.queue_bounds import (
    QueueBound,
    RaisedBound,
    bound_patch,
    bound_patches,
)
from kai_py.snapshot.tables.queue_objects import queue_info
from tests.dialects.kai.objects import kai_queue
from tests.simulate.clusters import queue

H100 = {"name": "h100", "attribute": "gpu.nvidia.com/productName", "values": ["H100"], "max": 1}
SMALL = {"name": "small", "deviceClassName": "mig.nvidia.com", "max": 2}
OURS = queue("team", 1, 2, devices=[H100, SMALL], resources={"cpu": {"max": 1}})
KAIS = {**kai_queue("team", quota=1, limit=1), "metadata": {"name": "team"}}


def amounts(document):
    """What each bound of a Queue is, by resource."""
    if document["apiVersion"] == KAIS["apiVersion"]:
        spec = kai_queue_info(msgspec.convert(document, KaiQueue))
    else:
        spec = queue_info(read_queue(document, unknown="forbid"))
    return {QueueBound.DESERVED: spec.deserved, QueueBound.MAX: spec.max}


@pytest.mark.parametrize("bound", QueueBound)
@pytest.mark.parametrize(
    ("document", "resource", "amount"),
    [
        (OURS, "gpu", 7.0),
        (OURS, "gpu", 2.5),
        (OURS, "cpu", 1500.0),
        (OURS, "memory", 3 * 2.0**30),
        (OURS, "memory", 5e9),
        (OURS, "nvidia.com/mig-1g.10gb", 3.0),
        (OURS, "deviceclass/mig.nvidia.com", 4.0),
        (OURS, "deviceattribute/gpu.nvidia.com/productName=H100", 5.0),
        (KAIS, "gpu", 1.5),
        (KAIS, "cpu", 2500.0),
        (KAIS, "memory", 7e6),
    ],
)
def test_what_is_written_is_read_as_the_amount(document, resource, amount, bound):
    raises = [RaisedBound(QueueBound.MAX, resource, amount), RaisedBound(bound, resource, amount)]
    _, patch = bound_patches(document, raises)
    before, after = amounts(document), amounts(apply_merge_patch(document, patch))
    for each in QueueBound:
        changed = {QueueBound.MAX, bound}
        others = {name: value for name, value in before[each].items() if name != resource}
        assert {name: after[each][name] for name in others} == others
        if each in changed:
            assert after[each][resource] == amount


def test_amounts_are_rounded_up_to_what_can_be_written():
    assert bound_patch(OURS, RaisedBound(QueueBound.MAX, "gpu", 1 / 7)).value == 0.143
    assert bound_patch(OURS, RaisedBound(QueueBound.MAX, "gpu", 3 * 0.1 * 10)).value == 3
    assert bound_patch(OURS, RaisedBound(QueueBound.MAX, "cpu", 1000.2)).value == "1001m"
    assert bound_patch(KAIS, RaisedBound(QueueBound.MAX, "memory", 8.0 * 2**30)).value == 8590


def test_what_a_queue_cannot_say_is_nothing():
    assert bound_patch(KAIS, RaisedBound(QueueBound.MAX, "deviceclass/gpu.nvidia.com", 1.0)) is None
    assert bound_patch(OURS, RaisedBound(QueueBound.MAX, "deviceclass/other", 1.0)) is None
    assert (
        bound_patch(
            {**OURS, "apiVersion": "example.com/v1"}, RaisedBound(QueueBound.MAX, "gpu", 1.0)
        )
        is None
    )
