"""Run peer tables case by case and end with one line per table.

A test module under ``tests/corpus`` names its table and takes one case per test::

    TABLE = "dra-cel-cases"

    def read_cases(data):            # optional: pathlib.Path -> {case id: case}
        ...                          # default: <data>/<TABLE>.json, "cases", keyed by "name"

    def test_case(case): ...         # runs once per case

A second test of the same cases has a table of its own: ``TABLES = {"test_other": "other-table"}``.

The tables are no part of the project; where they are missing the tests skip and say so
(``tests.support.repository``).

A case that we answer differently on purpose stands with its reason in ``deviations.yaml``. It still
runs: it must fail, or else the entry is out of date and that is the failure.
"""

import json
from pathlib import Path

import pytest

from tests.support import yaml_text
from tests.support.repository import DATA, needs
from tests.support.totals import TOTALS

HERE = Path(__file__).parent
DEVIATIONS = yaml_text.read((HERE / "deviations.yaml").read_text()) or {}


def pytest_generate_tests(metafunc):
    if "case" not in metafunc.fixturenames or not hasattr(metafunc.module, "TABLE"):
        return
    if not DATA.is_dir():
        metafunc.parametrize("case", [pytest.param(None, marks=needs(DATA), id="no-data")])
        return
    table = _table_of(metafunc.module, metafunc.function)
    cases = getattr(metafunc.module, "read_cases", _named_cases(table))(DATA)
    metafunc.parametrize("case", list(cases.values()), ids=list(cases))


def _table_of(module, function):
    return getattr(module, "TABLES", {}).get(function.__name__, module.TABLE)


def _named_cases(table):
    def read(data):
        document = json.loads((data / f"{table}.json").read_text())
        return {case["name"]: case for case in document["cases"]}

    return read


def _table_and_case(item):
    callspec = getattr(item, "callspec", None)
    if not hasattr(getattr(item, "module", None), "TABLE") or callspec is None:
        return None
    if callspec.params.get("case") is None:
        return None
    return _table_of(item.module, item.function), callspec.id


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    key = _table_and_case(pyfuncitem)
    if key is None:
        return (yield)
    table, case = key
    reason = (DEVIATIONS.get(table) or {}).get(case)
    outcome = "failing"
    try:
        result = yield
        if reason is not None:
            pytest.fail(f"{table}: {case} passes; take it out of deviations.yaml ({reason})")
        outcome = "passed"
    except AssertionError:
        if reason is None:
            raise
        outcome, result = "deviating", True
    finally:
        pyfuncitem.user_properties.append((TOTALS, (table, case, outcome)))
    return result
