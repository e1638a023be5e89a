import json
from dataclasses import dataclass

import pytest
import yaml

from kai_py.cli.output import Output, print_document


@dataclass(frozen=True)
class Row:
    queue: str
    nodes: tuple[str, ...]
    most: float | None


ROWS = [Row("team-a", ("node-0", "node-1"), None), Row("größer", (), 1.5)]
DOCUMENT = [
    {"queue": "team-a", "nodes": ["node-0", "node-1"], "most": None},
    {"queue": "größer", "nodes": [], "most": 1.5},
]


@pytest.mark.parametrize(
    ("output", "flag", "read"),
    [
        (Output.JSON, False, json.loads),
        (Output.TABLE, True, json.loads),
        (Output.YAML, False, yaml.safe_load),
    ],
)
def test_json_and_yaml_hold_the_same(capsys, output, flag, read):
    assert print_document(ROWS, output, json=flag)
    assert read(capsys.readouterr().out) == DOCUMENT


@pytest.mark.parametrize("output", [Output.TABLE, Output.WIDE])
def test_tables_are_left_to_the_command(capsys, output):
    assert not print_document(ROWS, output, json=False)
    assert capsys.readouterr().out == ""
