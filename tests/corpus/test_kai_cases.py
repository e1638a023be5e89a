"""Whole scheduling sessions recorded from KAI-Scheduler, played with the kai rules.

Twice: up to what the tables ask for, and up to where every task ended in the peer's sessions.
"""

import json
from functools import cache

import pytest

from tests.corpus.kai_cluster import snapshot_of
from tests.corpus.kai_objects import snapshot_of_objects
from tests.corpus.kai_session import play, play_beside, sessions_of

TABLE = "kai-cases"
TABLES = {"test_recorded_ends": "kai-recorded-ends"}
ONLY_OBJECTS = frozenset({"DRA feature on", "PVC"})
"""Features of cases with claims, which there is no way to state but as objects."""


@cache
def read_cases(data):
    cases = {}
    for file in sorted((data / TABLE).glob("*.json")):
        for position, case in enumerate(json.loads(file.read_text())):
            if case.get("portable", True):
                cases[f"{file.stem}[{position}] {case['name']}"] = case
    return cases


@pytest.fixture(scope="module")
def runs():
    return {}


@pytest.fixture
def run(case, runs):
    """Plays sessions of the case; both tests of a case begin with the same."""
    return runs.setdefault(id(case), sessions_of(case, reader_of(case)))


def test_case(case, run):
    play(case, run)


def test_recorded_ends(case, run):
    play_beside(case, run)


def reader_of(case):
    """What makes a snapshot of the clusters of the case."""
    plain = ONLY_OBJECTS.isdisjoint(case["features"])
    return snapshot_of if plain else snapshot_of_objects
