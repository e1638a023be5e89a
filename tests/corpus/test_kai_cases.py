"""Whole scheduling sessions recorded from KAI-Scheduler, played with the kai rules."""

import json

from tests.corpus.kai_session import play

TABLE = "kai-cases"
NOT_BUILT_YET = frozenset(
    {
        "DRA feature on",
    }
)
"""Feature tags of cases that wait for something which is not built yet."""


def read_cases(data):
    cases = {}
    for file in sorted((data / TABLE).glob("*.json")):
        for position, case in enumerate(json.loads(file.read_text())):
            if case.get("portable", True):
                cases[f"{file.stem}[{position}] {case['name']}"] = case
    return cases


def test_case(case):
    play(case)
