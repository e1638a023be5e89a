import json

import numpy as np
import pytest

from kai_py.policy.fair_share import divide_surplus, fair_share
from kai_py.policy.fairness_rules import KAI
from kai_py.policy.sibling_division import Siblings
from tests.corpus.peer_queues import RESOURCES, amounts, table, vector
from tests.support.records import replace

TABLE = "kai-fairshare-cases"


def read_cases(data):
    cases = json.loads((data / f"{TABLE}.json").read_text())
    return {case["id"]: case for case in cases}


def test_case(case):
    queues = case["queues"]
    built = table(queues)
    total = vector(case["total"])
    rules = replace(KAI, usage_weight=case["k_value"])
    divide = surplus_only if case["function"] == "divide_over_quota_resource" else whole
    fair, remaining = divide(built, queues, total, rules)
    expected = case["expected"]
    for name, shares in expected["fair_share"].items():
        for resource, share in shares.items():
            ours = fair[RESOURCES.index(resource), built.positions[name]]
            assert ours == pytest.approx(share, rel=1e-6, abs=1e-6), (name, resource)
    if "remaining" in expected:
        left = remaining[RESOURCES.index(case["resource"])]
        assert left == pytest.approx(expected["remaining"], rel=1e-6, abs=1e-6)


def whole(built, queues, total, rules):
    demand, usage = (amounts(built, queues, key) for key in ("request", "usage"))
    share = fair_share(built, total, demand, rules, usage)
    return share.fair, share.remaining


def surplus_only(built, queues, total, rules):
    held, demand, usage = (amounts(built, queues, k) for k in ("fair_share", "request", "usage"))
    fair = held.copy()
    for row in range(len(RESOURCES)):
        siblings = Siblings(
            group=np.zeros(len(built), np.int64),
            budget=total[row : row + 1],
            ceiling=np.minimum(demand, built.max)[row],
            deserved=built.deserved[row],
            weight=built.weight[row],
            past_usage=usage[row],
            priority=built.priority,
            creation_order=built.creation_order,
        )
        left = total[row : row + 1]
        fair[row] += divide_surplus(siblings, held[row], left, rules.usage_weight)[0]
    return fair, total - (fair - held).sum(axis=1)
