"""Every message of the code has its place on the page, and every stage that can stop a gang."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import kai_py
from kai_py.commit.statuses import queue_conditions
from kai_py.plan.plan import Stage
from kai_py.snapshot.tables.queues import QueueFault
from tests.docs import pending_table
from tests.support.repository import DOCS

TEXT = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
CODE = Path(kai_py.__file__).parent
LONG = 8
"""Letters of a message that are enough to find it by."""
NOT_TOLD = {"InTree", "WithinDeserved", "WithinMax"}
"""Reasons of conditions that say that nothing is the matter."""


@cache
def every_call(path: Path) -> list[ast.Call]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def calls(folder: Path, *names: str) -> Iterator[ast.Call]:
    """Calls of functions of these names."""
    for path in sorted(folder.rglob("*.py")):
        for call in every_call(path):
            if getattr(call.func, "attr", getattr(call.func, "id", "")) in names:
                yield call


def fixed(message: ast.expr) -> str:
    """The longest part of a message that is always the same."""
    parts = [
        each.value
        for each in ast.walk(message)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    pieces = [piece.strip(' :;,()"') for part in parts for piece in re.split(r"%\S+", part)]
    return max(pieces, key=len, default="")


def logged() -> set[str]:
    return {
        fixed(call.args[0])
        for call in calls(CODE, "warning", "error", "exception")
        if isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "log"
    }


def commanded() -> set[str]:
    return {fixed(call.args[0]) for call in calls(CODE / "cli", "CommandError") if call.args}


def reasons() -> set[str]:
    told = calls(CODE / "commit", "_record", "_warn", "QueueCondition")
    words = {
        argument.value
        for call in told
        for argument in call.args[1:3]
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    } | {*QueueFault, queue_conditions.ACCEPTED, queue_conditions.ANCESTOR_ORPHAN}
    actions = {call.args[2].value for call in calls(CODE / "commit", "_record", "_warn")
               if len(call.args) > 2 and isinstance(call.args[2], ast.Constant)}  # fmt: skip
    return words - actions - NOT_TOLD - {"True", "False"}


def test_every_stage_has_a_line():
    told = re.findall(r"^\| `(\w+)` \|", TEXT.partition("\n## ")[0], re.MULTILINE)
    assert sorted(told) == sorted(stage.value for stage in Stage)


def test_every_reason_of_an_event_or_condition_has_a_line():
    assert len(reasons()) > 15
    assert {each for each in reasons() if f"`{each}`" not in TEXT} == set()


@pytest.mark.slow
def test_every_message_of_the_log_has_a_line():
    assert len(logged()) > 15
    assert {each for each in logged() if len(each) >= LONG and each not in TEXT} == set()


def test_every_message_of_commands_has_a_line():
    assert len(commanded()) > 15
    assert {each for each in commanded() if len(each) >= LONG and each not in TEXT} == set()


def test_lines_say_what_helps():
    for line in re.findall(r"^\| .*\|$", TEXT, re.MULTILINE):
        assert all(cell.strip() for cell in line.strip("|").split(" | ")), line


def test_the_table_of_pending_situations_is_as_the_corpus_has_it():
    assert set(pending_table.recorded()) == {each.name for each in pending_table.COMPARED}
    assert pending_table.PAGE.read_text() == pending_table.page()
