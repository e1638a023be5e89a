from kai_py.observe.health import (
    stale_watches,
    stuck_cycle,
    unreachable_kinds,
    unreadable_kinds,
    unsynced_kinds,
)
from kai_py.watch.mirror import KindStatus


def kind(name, *, age=0.0, synced=True, api_version="v1", problem="", **more):
    return KindStatus(
        kind=name,
        api_version=api_version,
        synced=synced,
        objects=0,
        age=age,
        problem=problem,
        rejected=(),
        **more,
    )


def test_a_watch_that_hears_neither_events_nor_an_error_is_stale():
    """After 75 s it is listed, which ends within 120 s."""
    kinds = [kind("Pod", age=241.0), kind("Node", age=239.0)]
    assert stale_watches(kinds) == ["Pod: no watch events and no error for 241 s"]


def test_a_server_that_fails_makes_no_process_unhealthy():
    failing = kind("Pod", age=1e6, problem="503")
    assert stale_watches([failing]) == [], "a restart would not help"
    assert unreachable_kinds([failing]) == ["Pod: unreachable for 1000000 s: 503"]


def test_a_watch_may_be_quiet_as_long_as_the_configuration_says():
    quiet = kind("Pod", age=599.0, listed_after=555.0)
    assert unreachable_kinds([quiet]) == stale_watches([quiet]) == []
    assert len(unreachable_kinds([kind("Pod", age=601.0, listed_after=555.0)])) == 1


def test_a_kind_that_is_not_served_is_no_fault():
    assert stale_watches([kind("Queue", age=1e6, api_version="")]) == []


def test_kinds_that_are_not_read_are_named():
    assert unsynced_kinds([kind("Pod", synced=False), kind("Node")]) == [
        "Pod: not read yet: still reading"
    ]


def test_kinds_whose_watch_fails_for_a_while_are_named():
    failing = kind("Pod", age=6.0, problem="connection refused")
    quiet, blip = kind("Node", age=50.0), kind("Job", age=1.0, problem="connection refused")
    unread = kind("Queue", age=6.0, problem="connection refused", synced=False)
    assert unreachable_kinds([failing, quiet, blip, unread]) == [
        "Pod: unreachable for 6 s: connection refused"
    ]


def test_a_silent_watch_makes_unready_before_it_makes_unwell():
    silent, unserved = kind("Pod", age=121.0), kind("Queue", age=1e6, api_version="")
    assert unreachable_kinds([silent, unserved]) == [
        "Pod: unreachable for 121 s: no watch events received"
    ]
    assert stale_watches([silent]) == []


def test_a_cycle_that_does_not_end_is_stuck():
    assert stuck_cycle(119.0) == []
    assert "121 s" in stuck_cycle(121.0)[0]


def test_kinds_that_may_not_be_read_are_forgone_unless_they_are_required():
    refused = {"synced": False, "age": 1e6, "problem": "403"}
    budgets = kind(
        "PodDisruptionBudget", missing_permission="poddisruptionbudgets.policy", **refused
    )
    pods = kind("Pod", missing_permission="pods", required=True, **refused)
    assert unreadable_kinds([budgets, pods, kind("Node")]) == [
        "PodDisruptionBudget: not read: the permission to list and watch "
        "poddisruptionbudgets.policy is missing"
    ]
    assert unsynced_kinds([budgets, pods, kind("Node")]) == [
        "Pod: not read yet: the permission to list and watch pods is missing"
    ]
    assert stale_watches([budgets, pods]) == []
