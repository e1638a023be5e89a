"""Conditions as a saved cluster has them: halves of them are none."""

import pytest

from kai_py.embedded.documents import condition_states, is_true, with_condition

HALVES = [None, {}, {"type": "Ready"}, {"status": "True"}, {"type": None, "status": "True"}]
READY = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize("half", HALVES)
def test_half_a_condition_is_not_true_and_hides_no_other(half):
    assert not is_true({"status": {"conditions": [half]}}, "Ready")
    document = {"status": {"conditions": [half, READY]}}
    assert is_true(document, "Ready")
    assert ("Ready", "True") in condition_states(document)


@pytest.mark.parametrize("half", HALVES)
def test_a_condition_takes_the_place_of_its_half(half):
    status = with_condition({"conditions": [half]}, READY, now=0.0)
    assert status["conditions"][-1] == {**READY, "lastTransitionTime": "1970-01-01T00:00:00Z"}
    assert len(status["conditions"]) == (1 if half == {"type": "Ready"} else 2)


@pytest.mark.parametrize("status", [None, {}, {"conditions": None}, {"conditions": []}])
def test_without_conditions_none_is_true(status):
    assert not is_true({"status": status}, "Ready")
