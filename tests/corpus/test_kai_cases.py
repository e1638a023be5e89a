"""Whole scheduling sessions recorded from KAI-Scheduler, played with the kai rules."""

import json

from tests.corpus.kai_cluster import snapshot_of
from tests.corpus.kai_objects import snapshot_of_objects
from tests.corpus.kai_session import play

TABLE = "kai-cases"
ONLY_OBJECTS = frozenset({"DRA feature on", "PVC"})
"""Features of cases with claims, which there is no way to state but as objects."""


def read_cases(data):
    cases = {}
    for file in sorted((data / TABLE).glob("*.json")):
        for position, case in enumerate(json.loads(file.read_text())):
            if case.get("portable", True):
                cases[f"{file.stem}[{position}] {case['name']}"] = case
    return cases


def test_case(case):
    play(case, reader_of(case))


def reader_of(case):
    """What makes a snapshot of the clusters of the case."""
    plain = ONLY_OBJECTS.isdisjoint(case["features"])
    return snapshot_of if plain else snapshot_of_objects
