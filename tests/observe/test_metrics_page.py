"""What the documentation names exists. Dashboards and rules: tests/deploy/test_monitoring.py."""

import re
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from kai_py.observe.cluster_metrics import ClusterMetrics
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.decision_metrics import DecisionMetrics
from kai_py.observe.metrics import Metrics
from kai_py.plan.decisions import Plan
from tests.worlds import world

DOCS = Path(__file__).parents[2] / "docs"
NAMED = re.compile(r"\bkai_(?:py|device)_\w+")
OF_HISTOGRAMS = re.compile(r"_(bucket|sum|count)$")


@pytest.fixture
def names():
    registry = CollectorRegistry()
    Metrics(registry)
    DecisionMetrics(registry)
    view = ClusterView(1, world({"n": 8}).snapshot(0.0), Plan(), np.zeros(1))
    ClusterMetrics(registry, lambda: view)
    return {
        family.name + ("_total" if family.type == "counter" else "")
        for family in registry.collect()
    }


def named(text):
    return {OF_HISTOGRAMS.sub("", name) for name in NAMED.findall(text)}


def test_the_page_names_the_metrics_that_exist(names):
    assert named((DOCS / "metrics.md").read_text()) == names
