import ast
import contextlib
import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from kai_py import cli
from kai_py.cli.output import Output, OutputOptions, print_document, print_table, progress, say


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


PRINTS_ITSELF = {"output.py", "main.py", "demo.py"}
"""What makes text printable, and what names nothing that others wrote."""


def prints_formatted_text(module):
    """Whether a call of ``print`` or ``typer.echo`` is given a text with values in it."""
    calls = [each for each in ast.walk(ast.parse(module.read_text())) if isinstance(each, ast.Call)]
    printing = [each for each in calls if ast.unparse(each.func) in ("print", "typer.echo")]
    texts = [part for each in printing for argument in each.args for part in ast.walk(argument)]
    return any(isinstance(each, ast.FormattedValue) for each in texts)


def test_every_command_prints_what_others_wrote_by_say():
    modules = sorted(Path(cli.__file__).parent.glob("*.py"))
    assert {each.name for each in modules if prints_formatted_text(each)} <= PRINTS_ITSELF


@pytest.mark.parametrize(
    ("output", "read"), [(Output.JSON, json.loads), (Output.YAML, yaml.safe_load)]
)
def test_documents_keep_what_they_may_not_show(capsys, output, read):
    assert print_document([ATTACK, "größer"], output)
    text = capsys.readouterr().out
    assert not set("\x1b\x07\x9b\u202e") & set(text)
    assert read(text) == [ATTACK, "größer"]


class Screen(io.StringIO):
    def isatty(self):
        return True


def shown(stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with progress("simulated hours", 24.0) as tell:
        tell(12.0)
    return stream.getvalue()


def test_the_bar_is_for_terminals_only(monkeypatch):
    assert shown(io.StringIO(), monkeypatch) == ""
    assert "simulated hours" in shown(Screen(), monkeypatch)


def test_the_bar_goes_when_the_work_fails(monkeypatch):
    stream = Screen()
    monkeypatch.setattr(sys, "stderr", stream)
    with contextlib.suppress(ValueError), progress("planning"):
        raise ValueError
    assert stream.getvalue().endswith("\x1b[2K") or "\x1b[?25h" in stream.getvalue()
