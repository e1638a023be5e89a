"""What queues are due is computed again once it can be different, and only then."""

import pytest

from kai_py.plan.cycle import pending_gangs as module
from kai_py.policy.lost_work import LossRules
from tests.support.scenario import cluster, job_with_pods, node, queue

CHANGES = {
    "a gang that waits": job_with_pods("new", 1, queue="b", created=5.0),
    "a gang that runs": job_with_pods("new", 1, queue="b", node="n", created=5.0),
    "the weight of a queue": [queue("b", weight=3)],
    "another queue": [queue("c")],
}


@pytest.fixture
def computed(monkeypatch):
    found, real = [], module._due_amounts

    def recorded(*args):
        found.append(real(*args))
        return found[-1]

    monkeypatch.setattr(module, "_due_amounts", recorded)
    return found


@pytest.fixture
def full():
    made = cluster(
        queue("a"),
        queue("b"),
        node("n", 4),
        job_with_pods("runs", 3, queue="a", node="n"),
        job_with_pods("waits", 8, queue="a"),
        job_with_pods("waits-too", 8, queue="b"),
        loss_rules=LossRules(patience=60.0),
    )
    made.plan(100.0)
    return made


def test_not_while_nothing_changes(computed, full):
    full.plan(101.0)
    assert len(computed) == 1


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_again_after_a_change_of(change, computed, full):
    full.add(change)
    full.plan(101.0)
    assert len(computed) == 2
    assert full.memory.last_due.found is computed[-1]
