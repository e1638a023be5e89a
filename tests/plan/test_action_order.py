"""Which actions run in a cycle, in which order, and for which gangs."""

from types import SimpleNamespace
from unittest.mock import patch

import pytest

from kai_py.api.records.record import convert_record
from kai_py.api.records.resource import ResourceClaimSpec
from kai_py.dra.parsed_claims import ExcludedKinds
from kai_py.plan.cycle import action_turns
from kai_py.plan.plan import Action
from kai_py.plan.session.excluded_kinds import MAX_EXCLUDED, exclude_kinds, excluding
from kai_py.plan.session.settings import CycleSettings
from kai_py.policy.fairness_rules import NATIVE, BypassPolicy
from tests.support.records import replace

GANGS = [SimpleNamespace(key=key) for key in "abcd"]
IN_TURN = replace(NATIVE, bypass_policy=BypassPolicy.PREEMPT_FIRST)
WHO_FITS = replace(NATIVE, bypass_policy=BypassPolicy.BYPASS_FIRST)
ALL = CycleSettings().actions
WITHOUT = {each: tuple(one for one in ALL if one is not each) for each in ALL}


def turns(rules, actions, *, within="ab", placed_by=()):
    """Each action with the keys of its gangs; ``placed_by``: by action what it places."""
    placed = set()
    state = SimpleNamespace(settings=CycleSettings(rules=rules, actions=actions))

    def unplaced(_state, gangs):
        return [gang for gang in gangs if gang.key not in placed]

    def within_share(_state, gangs):
        return [gang for gang in gangs if gang.key in within]

    with (
        patch.object(action_turns, "unplaced_gangs", unplaced),
        patch.object(action_turns, "gangs_within_share", within_share),
    ):
        for action, gangs in action_turns._actions_in_turn(state, GANGS):
            yield f"{action}: {''.join(gang.key for gang in gangs)}"
            placed.update(dict(placed_by).get(action, ""))


@pytest.mark.parametrize(
    ("rules", "actions", "within", "expected"),
    [
        (
            WHO_FITS,
            ALL,
            "ab",
            ["consolidate: abcd", "reclaim: abcd", "preempt: abcd", "stale: abcd"],
        ),
        (
            IN_TURN,
            ALL,
            "ab",
            [
                "consolidate: ab",
                "reclaim: abcd",
                "preempt: abcd",
                "consolidate: cd",
                "stale: abcd",
            ],
        ),
        (IN_TURN, ALL, "", ["consolidate: abcd", "reclaim: abcd", "preempt: abcd", "stale: abcd"]),
        (
            IN_TURN,
            ALL,
            "abcd",
            ["consolidate: abcd", "reclaim: abcd", "preempt: abcd", "stale: abcd"],
        ),
        (
            IN_TURN,
            WITHOUT[Action.RECLAIM],
            "ab",
            ["consolidate: abcd", "preempt: abcd", "stale: abcd"],
        ),
        (
            IN_TURN,
            WITHOUT[Action.STALE],
            "ab",
            ["consolidate: ab", "reclaim: abcd", "preempt: abcd", "consolidate: cd"],
        ),
    ],
)
def test_consolidation_comes_first_for_gangs_that_may_reclaim(rules, actions, within, expected):
    assert [*turns(rules, actions, within=within)] == ["allocate: abcd", *expected]


def test_what_an_action_places_is_not_tried_by_the_next():
    placed = {Action.ALLOCATE: "a", Action.CONSOLIDATE: "b", Action.PREEMPT: "c"}
    assert [*turns(IN_TURN, ALL, placed_by=placed)] == [
        "allocate: abcd",
        "consolidate: b",
        "reclaim: cd",
        "preempt: cd",
        "consolidate: d",
        "stale: d",
    ]


def claims(*requests):
    devices = {"devices": {"requests": [{"name": "r", **each} for each in requests]}}
    return convert_record(devices, ResourceClaimSpec)


EXACT = {"exactly": {"deviceClassName": "c", "selectors": [{"cel": {"expression": "true"}}]}}
LISTED = {"firstAvailable": [{"name": "a", "deviceClassName": "c"}] * 2}


def with_kinds(spec, count=1):
    """The spec without some kinds of devices, and how many selectors each option has then."""
    kinds = [f"kind-{number}" for number in range(count)]
    [made] = [excluding(each, lambda _option: kinds) for each in spec.devices.requests]
    options = [each for each in (made.exactly, *made.first_available) if each is not None]
    changed = replace(spec, devices=replace(spec.devices, requests=(made,)))
    return changed, [[*each.selectors] for each in options]


@pytest.mark.parametrize(
    ("request_", "count", "excluded"),
    [
        (EXACT, 1, [True]),
        (EXACT, 0, [False]),
        (EXACT, MAX_EXCLUDED, [True]),
        (EXACT, MAX_EXCLUDED + 1, [False]),
        (LISTED, 1, [True, True]),
        ({"exactly": {"deviceClassName": "c", "allocationMode": "All"}}, 1, [False]),
        ({"exactly": {"deviceClassName": "c", "adminAccess": True}}, 1, [False]),
    ],
)
def test_kinds_are_excluded_where_a_device_of_several_is_chosen(request_, count, excluded):
    spec = claims(request_)
    changed, selectors = with_kinds(spec, count)
    found = [any(isinstance(each, ExcludedKinds) for each in option) for option in selectors]
    assert found == excluded
    assert exclude_kinds([spec]) is False
    assert exclude_kinds([spec, changed]) is any(excluded)
