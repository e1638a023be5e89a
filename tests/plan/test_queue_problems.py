"""Faults of queues in a plan: each queue has its own, whatever the number of faulty queues."""

from msgspec.structs import replace

from kai_py.plan.cycle import outcome
from tests.support.scenario import cluster, queue

QUEUES = 20


class Problems(tuple):
    """Problems that count how often they are read."""

    reads = 0

    def __iter__(self):
        type(self).reads += 1
        return super().__iter__()


def test_the_problems_of_all_queues_are_read_once(monkeypatch):
    original = outcome.queue_shares

    def counted(state, *given):
        state.quota = replace(state.quota, problems=Problems(state.quota.problems))
        Problems.reads = 0
        return original(state, *given)

    monkeypatch.setattr(outcome, "queue_shares", counted)
    plan = cluster(*(queue(f"q{i}", parent=f"q{i ^ 1}") for i in range(QUEUES))).plan()
    found = {share.queue: [each.queue for each in share.problems] for share in plan.queues}
    assert found == {f"q{i}": [f"q{i}"] for i in range(QUEUES)}
    assert Problems.reads == 1
