"""Whole scheduling sessions recorded from KAI-Scheduler, played with the kai rules."""

import json

from tests.corpus.kai_cluster import snapshot_of
from tests.corpus.kai_objects import snapshot_of_objects
from tests.corpus.kai_session import play

TABLE = "kai-cases"
CLAIMS = "DRA feature on"
"""Cases with device claims, which there is no way to state but as objects."""


def read_cases(data):
    cases = {}
    for file in sorted((data / TABLE).glob("*.json")):
        for position, case in enumerate(json.loads(file.read_text())):
            if case.get("portable", True):
                cases[f"{file.stem}[{position}] {case['name']}"] = case
    return cases


def test_case(case):
    play(case, snapshot_of_objects if CLAIMS in case["features"] else snapshot_of)
