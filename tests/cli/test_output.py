import json
from dataclasses import dataclass

import pytest
import yaml

from kai_py.cli.output import Output, OutputOptions, print_document, print_table, say


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
    assert print_document(ROWS, OutputOptions(output, flag).form)
    assert read(capsys.readouterr().out) == DOCUMENT


@pytest.mark.parametrize("output", [Output.TABLE, Output.WIDE])
def test_tables_are_left_to_the_command(capsys, output):
    assert not print_document(ROWS, output)
    assert capsys.readouterr().out == ""


ATTACK = "q\x1b]0;pwned\x07\x1b[2J\nforged line\x9b1m\u202e"


def test_what_others_wrote_forges_no_line(capsys):
    print_table(("QUEUE", "MESSAGE"), [(ATTACK, ATTACK)])
    say(f"gang {ATTACK}")
    say(ATTACK, err=True)
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 3
    assert captured.err.count("\n") == 1
    assert not set("\x1b\x07\x9b\u202e") & set(captured.out + captured.err)


@pytest.mark.parametrize(
    ("output", "read"), [(Output.JSON, json.loads), (Output.YAML, yaml.safe_load)]
)
def test_documents_keep_what_they_may_not_show(capsys, output, read):
    assert print_document([ATTACK, "größer"], output)
    text = capsys.readouterr().out
    assert not set("\x1b\x07\x9b\u202e") & set(text)
    assert read(text) == [ATTACK, "größer"]
