"""A report as one HTML page: text, tables and plots; it needs no network, light and dark.

The plots are drawn by plotly, whose script is part of the page (4.8 MB).
"""

import html
from collections.abc import Iterable, Sequence

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from kai_py.api.printable import printable

_CONFIG = {"displayModeBar": False, "responsive": True}
# The texts and lines of a plot follow the colours of the page, which plotly cannot know.
_STYLE = """
:root { color-scheme: light dark; --line: #8886; --text: light-dark(#1b1f24, #e6e8ea); }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem;
  background: light-dark(#fff, #14171a); color: var(--text); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--line); text-align: left; }
.figures { text-align: right; }
figure { margin: 0; }
figcaption { opacity: .8; }
.js-plotly-plot svg text { fill: var(--text) !important; }
.js-plotly-plot .gridlayer path, .js-plotly-plot .zerolinelayer path {
  stroke: var(--line) !important; }
.js-plotly-plot .hoverlayer text { fill: #fff !important; }
"""


def html_page(title: str, parts: Iterable[str]) -> str:
    """The whole page; ``parts`` are HTML as the functions below return it."""
    title = escaped(title)
    head = (
        '<meta charset=utf-8><meta name=viewport content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style><script>{get_plotlyjs()}</script>"
    )
    body = f"<h1>{title}</h1>{''.join(parts)}"
    return f"<!doctype html><html lang=en><head>{head}</head><body>{body}</body></html>\n"


def escaped(text: str) -> str:
    """Text that may hold anything, as HTML and as a label in a plot."""
    return html.escape(printable(text))


def heading(text: str) -> str:
    """A heading of a section."""
    return f"<h2>{escaped(text)}</h2>"


def paragraph(text: str) -> str:
    """A paragraph."""
    return f"<p>{escaped(text)}</p>"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; figures are aligned to the right, texts to the left. Without rows, nothing."""
    rows = list(rows)
    if not rows:
        return ""
    marks = [_mark(column) for column in zip(*rows, strict=True)]
    head = "".join(
        f"<th scope=col{mark}>{escaped(each)}" for each, mark in zip(headings, marks, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{mark}>{escaped(cell)}" for cell, mark in zip(row, marks, strict=True))
        for row in rows
    )
    return (
        "<div class=wide tabindex=0>"
        f"<table><thead><tr>{head}</thead><tbody>{body}</tbody></table></div>"
    )


def _mark(cells: Iterable[str]) -> str:
    """The class of a column in which every cell begins with a digit or has no value."""
    return " class=figures" if all(cell[:1].isdigit() or cell == "-" for cell in cells) else ""


def plot(figure: go.Figure, *, name: str, caption: str) -> str:
    """A plot with its caption; ``name`` is unique within the page."""
    drawn = figure.to_html(
        full_html=False, include_plotlyjs=False, div_id=f"plot-{name}", config=_CONFIG
    )
    return f"<figure>{drawn}<figcaption>{escaped(caption)}</figcaption></figure>"
