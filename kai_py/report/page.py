"""A report as one HTML page: text, tables and plots; it needs no network, light and dark.

The plots are drawn by plotly, whose script is part of the page (4.8 MB).

Its panels stand side by side with one scale, in colours of the same meaning: those of Okabe and
Ito, which people with any kind of colour vision tell apart.
"""

import html
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from msgspec import Struct
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from kai_py.api.texts import printable

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


COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("solid", "dash", "dot")
PANEL_HEIGHT = 260
MARGINS = {"l": 60, "r": 20, "t": 40, "b": 90}


class Curve(Struct, frozen=True):
    """One curve: points, and how it is drawn.

    ``steps``: each value holds until the next point. ``dash``: a dash style of plotly.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    color: str
    dash: str = "solid"
    is_area: bool = False
    steps: bool = True


def curves(
    panels: Mapping[str, Sequence[Curve]],
    *,
    x_title: str,
    y_title: str,
    columns: int = 2,
    x_type: str = "linear",
) -> go.Figure:
    """Panels by their titles, with the same scales; a curve of one name is one legend entry."""
    figure, places = _grid(list(panels), columns, x_title=x_title, y_title=y_title)
    seen: set[str] = set()
    for place, found in zip(places, panels.values(), strict=True):
        for curve in found:
            trace = go.Scatter(
                x=list(curve.x),
                y=list(curve.y),
                name=escaped(curve.name),
                legendgroup=curve.name,
                showlegend=curve.name not in seen,
                mode="lines",
                line={
                    "color": curve.color,
                    "dash": curve.dash,
                    "width": 1.5,
                    "shape": "hv" if curve.steps else "linear",
                },
                fill="tozeroy" if curve.is_area else "none",
            )
            figure.add_trace(trace, *place)
            seen.add(curve.name)
    figure.update_xaxes(type=x_type)
    return figure


def started_within(groups: Mapping[str, Sequence[float | None]]) -> list[Curve]:
    """Distribution of waiting times: the part of a group that had started after x minutes.

    ``groups``: seconds by name of the group, None for what did not start.
    """
    found = []
    for at, (name, waits) in enumerate(groups.items()):
        minutes = np.sort([seconds / 60 for seconds in waits if seconds is not None])
        parts = np.arange(1, len(minutes) + 1) / max(len(waits), 1)
        # A wait of nothing has no place on a logarithmic scale.
        shown = np.maximum(minutes, 1 / 60)
        color, dash = COLORS[at % len(COLORS)], DASHES[at // len(COLORS) % len(DASHES)]
        found.append(Curve(name, shown.tolist(), parts.tolist(), color, dash))
    return found


def waiting_times(
    panels: Mapping[str, Mapping[str, Sequence[float | None]]], *, caption: str
) -> str:
    """The plot of ``started_within`` for each panel."""
    shown = {title: started_within(groups) for title, groups in panels.items()}
    figure = curves(shown, x_title="minutes waited", y_title="part of the gangs", x_type="log")
    figure.update_yaxes(range=[0, 1.02], tickformat=".0%")
    return plot(figure, name="waits", caption=caption)


def bars(
    panels: Mapping[str, Mapping[str, Mapping[str, float]]], *, y_titles: Sequence[str]
) -> go.Figure:
    """Groups of bars: panel, series (one colour each), and value by category."""
    figure, places = _grid(list(panels), max(len(panels), 1), x_title="", y_title="")
    names: dict[str, str] = {}
    for place, y_title, series in zip(places, y_titles, panels.values(), strict=True):
        for name, values in series.items():
            is_new = name not in names
            color = names.setdefault(name, COLORS[len(names) % len(COLORS)])
            trace = go.Bar(
                x=[escaped(category) for category in values],
                y=list(values.values()),
                name=escaped(name),
                legendgroup=name,
                showlegend=is_new,
                marker={"color": color},
            )
            figure.add_trace(trace, *place)
        figure.update_yaxes(title=escaped(y_title), row=place[0], col=place[1])
    figure.update_yaxes(matches=None, showticklabels=True)
    figure.update_xaxes(type="category", matches=None)
    return figure


def _grid(
    titles: Sequence[str], columns: int, *, x_title: str, y_title: str
) -> tuple[go.Figure, list[tuple[int, int]]]:
    """An empty figure of panels, and the row and column of each, from 1."""
    columns = max(min(columns, len(titles)), 1)
    rows = max(-(-len(titles) // columns), 1)
    figure = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[escaped(title) for title in titles],
        shared_yaxes="all",
        shared_xaxes="all",
        vertical_spacing=min(0.35 / rows, 0.3),
    )
    places = [(1 + at // columns, 1 + at % columns) for at in range(len(titles))]
    figure.update_layout(
        template="none",
        height=PANEL_HEIGHT * rows + 90,
        margin=MARGINS,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hovermode="x unified" if x_title else "x",
        hoverlabel={"bgcolor": "#333", "font": {"color": "#fff"}},
        showlegend=True,
        legend={"orientation": "h", "yref": "container", "y": 0.0, "yanchor": "bottom"},
    )
    figure.update_xaxes(showgrid=True, rangemode="tozero")
    figure.update_yaxes(showgrid=True, rangemode="tozero")
    for row, column in places:
        if column == 1:
            figure.update_yaxes(title=escaped(y_title), row=row, col=column)
        if row == rows or (row, column) in places[-columns:]:
            figure.update_xaxes(title=escaped(x_title), showticklabels=True, row=row, col=column)
    return figure, places
