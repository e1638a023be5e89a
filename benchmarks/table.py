"""How do the rows become one table, on the terminal and in a document?

The document keeps its text; only what stands between its two markers is renewed. The rows are kept
beside it as JSON, so that one part can be measured again without the others.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from string import ascii_uppercase

import msgspec

from benchmarks.row import OUT_OF_TIME, Row

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
COLUMNS = ("part", "problem", "median", "peak MB", "outcome", "peer", "aim", "at", "load")


def render(rows: Sequence[Row]) -> str:
    """A Markdown table, its columns aligned; rows of several machines have the machine's letter."""
    letters = _letters(rows)
    several = len(letters) > 1
    lines = [COLUMNS, *(_cells(row, letters[row.machine] if several else "") for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    text = [_line(line, widths) for line in lines]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([text[0], rule, *text[1:]])


def merged(known: Iterable[Row], new: Iterable[Row], order: Sequence[str]) -> list[Row]:
    """New rows in place of those known, if there was time to measure them.

    ``order``: every key there is, as ``part/name``.
    """
    rows = {_key(row): row for row in known}
    rows |= {_key(row): row for row in new if row.outcome != OUT_OF_TIME or _key(row) not in rows}
    return [rows[key] for key in order if key in rows]


def _key(row: Row) -> str:
    return f"{row.part}/{row.name}"


def read_rows(path: Path) -> list[Row]:
    """Rows written before; none when there is no file."""
    return msgspec.json.decode(path.read_bytes(), type=list[Row]) if path.exists() else []


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Keep rows as JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")


def write_document(rows: Sequence[Row], document: Path) -> None:
    """Renew the table in the document.

    Raises ValueError when the document has no place for it.
    """
    before, begin, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{document}: the table goes between {BEGIN} and {END}, which are missing")
    table = f"{BEGIN}\n\n{_measured_on(rows)}\n\n{render(rows)}\n\n{END}"
    document.write_text(before + table + after, encoding="utf-8")


def _letters(rows: Iterable[Row]) -> dict[str, str]:
    """A letter for each machine, in the order of the rows."""
    machines = dict.fromkeys(row.machine for row in rows)
    return dict(zip(machines, ascii_uppercase, strict=False))


def _measured_on(rows: Sequence[Row]) -> str:
    """One line for each machine."""
    letters = _letters(rows)
    if len(letters) == 1:
        return f"Machine: {rows[0].machine}."
    lines = [f"- **{letter}**: {each}" for each, letter in letters.items()]
    return "\n".join(["The machine of each row is named in *at*:", "", *lines])


def duration(seconds: float | None) -> str:
    """A time with three digits."""
    if seconds is None:
        return "–"
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (float("inf"), 1.0, "s")):
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    raise ValueError(f"not a duration: {seconds}")


def _cells(row: Row, letter: str) -> tuple[str, ...]:
    peak = "" if row.peak_mb is None else f"{row.peak_mb:.0f}"
    median = duration(row.seconds)
    return (
        *(row.part, row.title, median, peak, row.outcome),
        *(row.peer, row.aim, f"{row.date} {row.commit} {letter}".rstrip(), f"{row.load:.1f}"),
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f" {cell:<{width}} " for cell, width in zip(cells, widths, strict=True))
    return "|" + "|".join(padded) + "|"
