import pytest

from kai_py.commit.retry import IDLE_SECONDS, ObjectBackoff, RetryPolicy, retry_transient
from kai_py.watch.errors import Conflict, ServerError, TimedOut

POLICY = RetryPolicy(attempts=4, base=0.001, maximum=0.002)


def failing(*errors):
    left = list(errors)

    async def call():
        if left:
            raise left.pop(0)
        return "done"

    return call, left


async def test_transient_failures_are_repeated():
    call, _ = failing(TimedOut("a"), ServerError("b"), TimedOut("c"))
    assert await retry_transient(call, POLICY) == "done"


async def test_the_last_attempt_raises():
    call, left = failing(*(ServerError(str(i)) for i in range(5)))
    with pytest.raises(ServerError, match="3"):
        await retry_transient(call, POLICY)
    assert len(left) == 1


async def test_a_conflict_is_not_repeated():
    call, left = failing(Conflict("a"), Conflict("b"))
    with pytest.raises(Conflict):
        await retry_transient(call, POLICY)
    assert len(left) == 1


def test_waits_double_to_the_ceiling_with_jitter_in_the_upper_half():
    policy = RetryPolicy(base=1.0, maximum=5.0)
    for failures, longest in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0), (99, 5.0)):
        waits = [policy.delay(failures) for _ in range(200)]
        assert longest / 2 <= min(waits) < max(waits) <= longest
    assert policy.delay(1, at_least=30.0) == 30.0


def test_an_object_is_ready_again_after_its_own_wait():
    backoff = ObjectBackoff(RetryPolicy(base=1.0, maximum=8.0))
    assert backoff.is_ready("a", 0.0)
    wait = backoff.record_failure("a", 0.0)
    assert not backoff.is_ready("a", wait - 0.01)
    assert backoff.is_ready("a", wait)
    assert backoff.is_ready("b", 0.0), "another object failed"
    assert backoff.record_failure("a", 10.0) > 0.99, "the second wait is longer"
    backoff.reset("a")
    assert backoff.is_ready("a", 10.0)


def test_objects_that_are_not_tried_again_are_forgotten():
    backoff = ObjectBackoff(RetryPolicy(base=1.0, maximum=1.0))
    for number in range(100):
        backoff.record_failure(f"gone-{number}", float(number))
    backoff.record_failure("kept", 990.0)
    backoff.record_failure("kept", 2000.0)
    assert backoff.failures("kept") == 1
    assert [*backoff._not_before] == ["kept"]


def test_failures_count_until_an_object_is_idle_for_long():
    backoff = ObjectBackoff(RetryPolicy(base=1.0, maximum=1.0))
    backoff.record_failure("early", 0.0)
    backoff.record_failure("a", IDLE_SECONDS / 2)
    backoff.record_failure("other", IDLE_SECONDS)
    assert backoff.record_failure("a", 1.4 * IDLE_SECONDS) > 0.0
    assert backoff.failures("a") == 2
