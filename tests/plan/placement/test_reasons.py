"""Reasons as sentences."""

import pytest

from kai_py.plan.placement.reasons import ShortageCause, Unschedulable
from kai_py.plan.plan import Stage

CAUSES = (ShortageCause("1 has no GPU"),)


@pytest.mark.parametrize(
    ("summary", "causes", "sentences"),
    [
        ("It waits", (), "It waits."),
        ("It waits.", (), "It waits."),
        ("0/1", CAUSES, "0/1: 1 has no GPU."),
    ],
)
def test_a_sentence_ends_before_the_next_begins(summary, causes, sentences):
    reason = Unschedulable(Stage.RESOURCES, summary, causes=causes)
    assert reason.with_sentence("So it goes.").message == f"{sentences} So it goes."
    assert reason.with_clause("so it goes").message == f"{sentences[:-1]}; so it goes."
