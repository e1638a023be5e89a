"""The table says what was measured, and a part measured again replaces only itself."""

import pytest

from benchmarks.row import OUT_OF_TIME, Benchmark, Row
from benchmarks.runner import measure_all
from benchmarks.table import BEGIN, END, duration, merged, read_rows, render, write_document
from benchmarks.table import write_rows as write
from tests.support.records import replace

ROW = Row(
    part="core",
    name="fill",
    title="a fill",
    seconds=0.0123,
    peak_mb=81.6,
    outcome="4 bound",
    peer="KAI 1 s",
    aim="10 ms",
    commit="abc",
    load=0.5,
    date="2026-01-01",
    machine="EPYC, 2 cores",
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0.0000421, "42.1 µs"), (0.0123, "12.3 ms"), (1.5, "1.5 s"), (120.4, "120 s")],
)
def test_times_have_three_digits(seconds, text):
    assert duration(seconds) == text


def test_columns_are_aligned_and_rows_complete():
    failed = replace(ROW, name="x", title="a longer title", seconds=None, peak_mb=None)
    head, rule, first, second = render([ROW, failed]).splitlines()
    assert len({len(head), len(rule), len(first), len(second)}) == 1
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells == [
        *("core", "a fill", "12.3 ms", "82", "4 bound", "KAI 1 s", "10 ms"),
        *("2026-01-01 abc", "0.5"),
    ]
    assert "| – " in second


def test_rows_name_their_machine_where_there_are_several(tmp_path):
    document = tmp_path / "benchmarks.md"
    for machines in (("EPYC",), ("EPYC", "Xeon", "EPYC")):
        rows = [replace(ROW, name=f"{n}", machine=each) for n, each in enumerate(machines)]
        document.write_text(f"{BEGIN}\nold\n{END}\n", encoding="utf-8")
        write_document(rows, document)
        text = document.read_text(encoding="utf-8")
        if len(machines) == 1:
            assert "Machine: EPYC.\n" in text
            assert "2026-01-01 abc |" in text
        else:
            assert "- **A**: EPYC\n- **B**: Xeon\n" in text
            at = [line.split("|")[-3].strip() for line in text.splitlines() if "a fill" in line]
            assert at == ["2026-01-01 abc A", "2026-01-01 abc B", "2026-01-01 abc A"]


def test_new_rows_replace_known_ones_in_the_order_of_the_registry():
    known = [ROW, replace(ROW, name="gone"), replace(ROW, name="other")]
    again = replace(ROW, seconds=1.0)
    rows = merged(known, [again], ["core/other", "core/fill"])
    assert [(row.name, row.seconds) for row in rows] == [("other", 0.0123), ("fill", 1.0)]


def test_a_row_that_was_not_measured_replaces_none():
    missing = replace(ROW, seconds=None, outcome=OUT_OF_TIME)
    assert merged([ROW], [missing], ["core/fill"]) == [ROW]
    assert merged([], [missing], ["core/fill"]) == [missing]
    failed = replace(ROW, seconds=None, outcome="FAILED: no output")
    assert merged([ROW], [failed], ["core/fill"]) == [failed]


def test_rows_without_time_left_are_not_measured():
    row = Benchmark(part="core", name="fill", title="a fill", run=pytest.fail)
    (found,) = measure_all([row], limit=1.0, total=0.0)
    assert (found.seconds, found.outcome) == (None, OUT_OF_TIME)


def test_rows_come_back_from_their_file(tmp_path):
    path = tmp_path / "rows.json"
    assert read_rows(path) == []
    write(path, [ROW])
    assert read_rows(path) == [ROW]


def test_the_document_keeps_its_text(tmp_path):
    document = tmp_path / "benchmarks.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write_document([ROW], document)
    text = document.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "a fill" in text
    assert "old" not in text


def test_a_document_without_place_for_the_table_is_left_alone(tmp_path):
    document = tmp_path / "benchmarks.md"
    document.write_text("text\n", encoding="utf-8")
    with pytest.raises(ValueError, match="missing"):
        write_document([ROW], document)
    assert document.read_text(encoding="utf-8") == "text\n"
