from kai_py.embedded.clock import SIMULATION_START, SimulatedClock


def test_timers_run_in_order_of_time_then_of_registration():
    clock, seen = SimulatedClock(), []
    for name, delay in (("late", 5), ("first", 1), ("second", 1)):
        clock.call_later(delay, lambda name=name: seen.append((name, clock.now())))
    clock.advance(10)
    start = SIMULATION_START
    assert seen == [("first", start + 1), ("second", start + 1), ("late", start + 5)]
    assert clock.now() == start + 10


def test_a_timer_may_set_a_timer_that_is_due_in_the_same_advance():
    clock, seen = SimulatedClock(), []
    clock.call_later(1, lambda: clock.call_later(1, lambda: seen.append(clock.now())))
    clock.advance(2)
    assert seen == [SIMULATION_START + 2]


def test_a_cancelled_timer_does_not_run():
    clock, seen = SimulatedClock(), []
    clock.call_later(1, lambda: seen.append("cancelled")).cancel()
    clock.advance(2)
    assert seen == []
    assert clock.next_due() is None
