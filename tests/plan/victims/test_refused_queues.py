"""Which queues, and which of their units, fairness refuses to later reclaimers as well."""

from types import SimpleNamespace

import numpy as np
import pytest

from kai_py.plan.victims.refused_queues import RefusedQueues
from kai_py.policy.reclaim_rules import Reclaimer


def reclaimer(*request, queue=0, preemptible=True):
    return Reclaimer(queue, np.array(request, np.float64), preemptible)


def a_unit(queue, gpus):
    return SimpleNamespace(gang=SimpleNamespace(queue=queue), members=(gpus,))


@pytest.fixture
def state():
    running = [SimpleNamespace(bound=(3, 2)), SimpleNamespace(bound=(4,))]
    return SimpleNamespace(
        statement=SimpleNamespace(placed={}, evicted={}),
        quota=SimpleNamespace(
            queues=SimpleNamespace(positions={"q": 1, "r": 2}),
            cost_of=lambda members: np.array([float(sum(members)), 0.0]),
        ),
        evictable={1: running},
    )


@pytest.mark.parametrize("all_refused", [True, False])
def test_units_that_release_no_less_are_refused_or_all_if_even_the_least_is(state, all_refused):
    asked = []

    def refuses(victims):
        asked.append((victims.queue.tolist(), victims.amount.tolist()))
        return all_refused

    known = RefusedQueues(state)
    is_refused = known.units_like(a_unit("q", 3), reclaimer(1, 0), refuses)
    assert asked == [([1], [[2.0], [0.0]])], "the least that a pod of the queue releases"
    assert [is_refused(a_unit("q", gpus)) for gpus in (2, 3, 4)] == [all_refused, True, True]
    assert not is_refused(a_unit("r", 9))
    assert known.of(reclaimer(1, 0)) == ({1} if all_refused else set())


def test_a_refusal_holds_for_reclaimers_that_request_no_less_until_something_is_decided(state):
    known = RefusedQueues(state)
    known.units_like(a_unit("q", 3), reclaimer(2, 0), lambda _victims: True)
    assert known.of(reclaimer(2, 0)) == known.of(reclaimer(3, 0)) == {1}
    assert known.of(reclaimer(1, 0)) == set()
    assert known.of(reclaimer(2, 1)) == set(), "it requests another resource as well"
    assert known.of(reclaimer(2, 0, queue=2)) == set()
    assert known.of(reclaimer(2, 0, preemptible=False)) == set()
    state.statement.placed["pod"] = None
    assert known.of(reclaimer(2, 0)) == set()
