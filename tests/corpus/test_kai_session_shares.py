"""Fair shares of whole sessions, as recorded beside the behaviour cases of kai-cases."""

import json

import numpy as np

from kai_py.policy.fair_share import fair_share
from kai_py.policy.fairness_rules import KAI
from tests.corpus.peer_queues import RESOURCES, amounts, table, vector
from tests.support.records import replace

TABLE = "kai-session-shares"


def read_cases(data):
    return {
        f"{path.stem}:{position}@{number}": (case["cluster"]["queues"], session["fair_share"])
        for path in sorted((data / "kai-cases").glob("*.json"))
        for position, case in enumerate(json.loads(path.read_text()))
        for number, session in enumerate(case["actual"]["rounds"])
        if "fair_share" in session
    }


def test_case(case):
    declared, recorded = case
    queues = [described(queue, recorded["queues"][queue["name"]]) for queue in declared]
    built = table(queues)
    rules = replace(KAI, usage_weight=recorded["k_value"])
    demand, usage = (amounts(built, queues, key) for key in ("request", "usage"))
    ours = fair_share(built, vector(recorded["total"]), demand, rules, usage)
    expected = amounts(built, queues, "fair_share")
    np.testing.assert_allclose(ours.fair, expected, rtol=1e-6, atol=1e-6)


def described(declared, recorded):
    """A queue with what was recorded of it. A weight of -1 (of lone roots) stands for 1."""
    rows = {name: dict(recorded.get(name, {})) for name in RESOURCES}
    for row in rows.values():
        row["over_quota_weight"] = abs(row.get("over_quota_weight", 0))
    place = {key: declared.get(key, "") for key in ("parent", "priority", "creation_rank")}
    return {"uid": declared["name"], **place, **rows}
