"""Manifests of the documentation: valid to lint, and the pods in them complete.

tests/cluster/docs/test_pages.py sends them to an API server.
"""

import pytest
import yaml

from kai_py.config import parse_configuration
from kai_py.lint.check import lint_together
from kai_py.simulate.scenarios.scenario import parse_scenario
from tests.docs.pages import PAGES, label, manifests

WITH_MANIFESTS = [page for page in PAGES if manifests(page)]


@pytest.mark.parametrize("page", WITH_MANIFESTS, ids=label)
def test_lint_has_nothing_against_them(page):
    objects = [text for text in manifests(page) if "apiVersion:" in text]
    assert [error for report in lint_together(objects) for error in report.errors] == []


@pytest.mark.parametrize("page", WITH_MANIFESTS, ids=label)
def test_each_is_yaml(page):
    for text in manifests(page):
        assert list(yaml.safe_load_all(text))


def test_scenarios_are_taken():
    found = [t for page in PAGES for t in manifests(page) if t.startswith("hours:")]
    for text in found:
        parse_scenario(text)


def test_configurations_are_taken():
    found = [
        text for page in PAGES for text in manifests(page)
        if "apiVersion:" not in text and not text.startswith("hours:")
    ]  # fmt: skip
    assert len(found) >= 4
    for text in found:
        parse_configuration(text)
