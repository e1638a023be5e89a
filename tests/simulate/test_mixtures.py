"""More situations, in simulation: the stage is named, the first suggestion starts the gang.

What the suggestion says of others is what then happens to them.
"""

import pytest

from kai_py.simulate.steps import TakeSteps
from kai_py.snapshot.accounting import GPU
from tests.mixtures import MIXTURES
from tests.simulate.test_situations import bound, explained, staged
from tests.situations import Situation


@pytest.mark.parametrize("situation", MIXTURES, ids=lambda each: each.name)
def test_the_first_suggestion_starts_the_gang_as_it_says(situation: Situation):
    cluster = staged(situation)
    found = explained(cluster, situation)
    assert found.state == situation.stage
    assert situation.says in found.message
    assert bound(cluster, "waiting") == 0
    first = found.suggestions[0]
    assert first.text == situation.suggests
    assert situation.gang in first.starts
    TakeSteps(first.steps).apply(cluster)
    course = cluster.settle(60)
    assert bound(cluster, "waiting") == situation.pods
    assert sorted(first.evicts) == sorted({each.gang for each in course.evictions})
    held = {share.queue: share.allocated[GPU] for share in course.last.queues}
    for change in first.queues:
        assert held.get(change.queue, 0.0) == change.allocated[1]
