"""How tables come out in pipes and on terminals of different widths."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.cli.output import print_table, table_lines

HEADINGS = ("GANG", "QUEUE", "WHY")
ROWS = [
    ("default/Job/train", "team-a", "8 pods need more GPUs than are free on any of the nodes"),
    ("default/Job/x", "b", ""),
]


def test_lines_in_a_pipe_are_whole_and_end_with_their_last_word():
    assert list(table_lines(HEADINGS, ROWS, width=None)) == [
        "GANG                QUEUE    WHY",
        f"default/Job/train   team-a   {ROWS[0][2]}",
        "default/Job/x       b",
    ]


def test_the_last_column_is_folded_under_itself():
    assert list(table_lines(HEADINGS, ROWS, width=64)) == [
        "GANG                QUEUE    WHY",
        "default/Job/train   team-a   8 pods need more GPUs than are free",
        "                             on any of the nodes",
        "default/Job/x       b",
    ]


def test_on_a_narrow_terminal_the_last_column_is_below_the_others():
    assert list(table_lines(HEADINGS, ROWS, width=40)) == [
        "GANG                QUEUE",
        "default/Job/train   team-a",
        "   8 pods need more GPUs than are free",
        "   on any of the nodes",
        "default/Job/x       b",
    ]


def test_columns_without_a_place_are_below_with_their_headings():
    headings = ("NODE", "DEVICE", "PRODUCT", "STATUS", "CLAIM", "QUEUE")
    row = ("node-1", "gpu-0", "NVIDIA H100 80GB HBM3", "Allocated", "default/train-0", "team-a")
    lines = list(table_lines(headings, [row, (*row[:2], "", "Free", "-", "-")], width=40))
    assert lines == [
        "NODE     DEVICE   PRODUCT",
        "node-1   gpu-0    NVIDIA H100 80GB HBM3",
        "   STATUS Allocated, CLAIM",
        "   default/train-0, QUEUE team-a",
        "node-1   gpu-0",
        "   STATUS Free",
    ]


def test_a_table_without_rows_has_no_headings(capsys):
    print_table(HEADINGS, [])
    assert capsys.readouterr().out == ""


@given(st.data(), st.integers(40, 120))
def test_no_line_is_wider_than_the_terminal(data, width):
    columns = data.draw(st.integers(1, 9))
    word = st.text("ab", max_size=20)
    cell = st.lists(word, max_size=4).map(" ".join)
    row = st.tuples(*[word] * (columns - 1), cell)
    headings = tuple(f"H{number}" for number in range(columns))
    rows = data.draw(st.lists(row, max_size=4))
    lines = list(table_lines(headings, rows, width=width))
    assert all(len(line) <= width for line in lines)
    words = " ".join(lines).replace(",", " ").split()
    assert all(each in words for row in rows for cell in row for each in cell.split())


def test_no_word_is_broken():
    row = ("a", "registry.example.com/team/image-with-a-long-name")
    assert row[1] in "\n".join(table_lines(("A", "B"), [row], width=36))


def test_wide_characters_and_no_rows():
    assert list(table_lines(("A", "B"), [("火", "x"), ("abc", "y")], width=None)) == [
        "A     B", "火    x", "abc   y",
    ]  # fmt: skip
    assert list(table_lines(("A", "B"), [], width=80)) == ["A   B"]


@pytest.mark.parametrize(
    ("variables", "bold"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_headings_are_bold_on_terminals_that_want_it(monkeypatch, capsys, variables, bold):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    print_table(HEADINGS, ROWS)
    assert ("\x1b" in capsys.readouterr().out) is bold


def test_nothing_is_bold_in_a_pipe(capsys):
    print_table(HEADINGS, ROWS)
    assert "\x1b" not in capsys.readouterr().out
