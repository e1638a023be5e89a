"""How much of its share a queue had over time."""

import math

import numpy as np
import pytest

from kai_py.policy.queue_usage import QueueUsage
from kai_py.policy.served_share import GRACE_SECONDS, TOLERATED, DueTimes, ServedShare
from kai_py.snapshot.tables.queue_tree import build_queue_table
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.worlds import gang

ROWS = np.array([0], dtype=np.int32)


def usage(**amounts):
    """Queues with what each has and its fair share."""
    table, _ = build_queue_table([QueueInfo(name=name) for name in amounts], ("gpu",))
    allocated, fair = np.zeros((1, len(table))), np.zeros((1, len(table)))
    for name, (had, due) in amounts.items():
        allocated[0, table.positions[name]], fair[0, table.positions[name]] = had, due
    return QueueUsage(table, np.array([8.0]), allocated, np.zeros_like(allocated), fair)


def served(course, seconds):
    """Whether queue ``a`` was served after it had each of these amounts for ``seconds``."""
    found, now = ServedShare(), 1e9
    for had, due in course:
        found.advance(("gpu",), usage(a=(had, due)), now)
        now += seconds
    last = usage(a=course[-1])
    found.advance(("gpu",), last, now)
    return found.is_served(last.queues.positions["a"], ROWS)


def test_a_queue_without_history_is_served():
    found, now = ServedShare(), usage(a=(0, 4))
    found.advance(("gpu",), now, 1e9)
    assert found.is_served(now.queues.positions["a"], ROWS)


def test_a_queue_that_goes_without_is_not_served_for_long():
    assert served([(0, 4)], GRACE_SECONDS / 2)
    assert not served([(0, 4)], GRACE_SECONDS * 2)


@pytest.mark.parametrize(("hours", "missed"), [(1, 0.5 * TOLERATED), (1, 3 * TOLERATED)])
def test_a_part_of_what_it_was_due_is_tolerated(hours, missed):
    seconds = hours * 3600
    assert served([(4 * (1 - missed), 4)] * 4, seconds) == (missed < TOLERATED)


def test_more_than_its_share_makes_up_for_less():
    assert served([(8, 4), (1, 4)], 3600)


def test_new_queues_leave_what_is_known_of_others():
    found = ServedShare()
    found.advance(("gpu",), usage(a=(0, 4)), 1e9)
    found.advance(("gpu",), usage(a=(0, 4)), 1e9 + 3600)
    later = usage(b=(0, 4), a=(0, 4))
    found.advance(("gpu",), later, 1e9 + 3601)
    assert not found.is_served(later.queues.positions["a"], ROWS)
    assert found.is_served(later.queues.positions["b"], ROWS)


def test_what_a_queue_could_not_have_is_not_owed():
    found, now = ServedShare(), usage(a=(2, 4))
    for at in (1e9, 1e9 + 36000):
        found.advance(("gpu",), now, at, now.allocated)
    assert found.is_served(now.queues.positions["a"], ROWS)


def test_a_gang_is_due_from_its_creation_unless_it_was_seen_above_its_share():
    old, seen = gang("old", pods=1, created=10), gang("seen", pods=1, created=20)
    due, created = DueTimes(), old.waiting_since
    due.record_above_share(seen)
    assert due.since(old, created + 500) == created
    assert due.since(seen, created + 500) == created + 500


def test_a_gang_that_was_due_once_keeps_its_time_while_it_is_pending():
    new, due = gang("new", pods=1, created=10), DueTimes()
    assert due.since(new, new.waiting_since + 5) == new.waiting_since
    due.record_above_share(new)
    due.start_cycle({new.key})
    assert due.since(new, new.waiting_since + 500) == new.waiting_since
    due.start_cycle(())
    due.record_above_share(new)
    assert due.since(new, new.waiting_since + 500) == new.waiting_since + 500


@pytest.mark.parametrize(("deserved", "counts"), [(8.0, True), (math.inf, False)])
def test_what_is_deserved_without_limit_is_no_measure(deserved, counts):
    """Its share is all that is requested, also while another resource is what is lacking."""
    info = QueueInfo(name="a", deserved={"gpu": deserved})
    table, _ = build_queue_table([info], ("gpu",))
    amounts = np.zeros((1, len(table)))
    asked = QueueUsage(table, np.array([8.0]), amounts, amounts, amounts + 4)
    found = ServedShare()
    found.advance(("gpu",), asked, 1e9)
    found.advance(("gpu",), asked, 1e9 + 3600)
    assert found.is_served(table.positions["a"], ROWS) != counts
