"""The report as one HTML page without scripts or external resources, light and dark."""

import html
from collections.abc import Iterable, Sequence

from kai_py.api.printable import printable
from kai_py.simulate.report import SimulationReport, WaitingTimes
from kai_py.simulate.simulation import HOUR

WIDTH, HEIGHT = 900, 220

_STYLE = """
:root { color-scheme: light dark; --used: #2f7d4f; --waiting: #c2571a; --line: #8888; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
svg { width: 100%; height: auto; } .used { fill: var(--used); } text { fill: currentColor; }
.waiting { fill: none; stroke: var(--waiting); stroke-width: 2; } .axis { stroke: var(--line); }
"""


def report_page(report: SimulationReport, *, title: str) -> str:
    """The whole page."""
    queues = [
        (
            queue.queue,
            f"{queue.received:.1f}",
            f"{queue.entitled:.1f}",
            str(queue.evicted_pods),
            f"{queue.lost_gpu_hours:.1f}",
            *waiting_cells(queue.waiting_times),
        )
        for queue in report.queues
    ]
    sizes = [(name, *waiting_cells(waiting)) for name, waiting in report.by_size.items()]
    waiting_headings = ("gangs", "never started", "median wait", "p95 wait", "longest wait")
    parts = [
        f"<h1>{_text(title)}</h1>",
        f"<p>{report.hours:g} hours of {report.gpus:g} GPUs: {report.allocated:.1%} used, "
        f"{report.idle_while_waiting:.1%} idle while gangs requested as many, "
        f"{report.fragmented:.1%} idle on partly used nodes, Jain's fairness index "
        f"{report.jain_index:.3f}, {report.lost_gpu_hours:.1f} GPU-hours lost to evictions.</p>",
        _usage_chart(report),
        "<h2>Fragmentation</h2>",
        _fragmentation_chart(report),
        "<h2>Queues</h2>",
        _table(
            (
                "queue",
                "received GPU-h",
                "entitled GPU-h",
                "evicted pods",
                "lost GPU-h",
                *waiting_headings,
            ),
            queues,
        ),
        "<h2>Waiting times by GPUs of the gang</h2>",
        _table(("GPUs", *waiting_headings), sizes),
    ]
    if report.cost:
        costs = [(category, f"{price:,.0f}") for category, price in report.cost.items()]
        parts += ["<h2>Cost of the nodes</h2>", _table(("kind", "cost"), costs)]
    title = _text(title)
    head = f"<meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def duration(seconds: float) -> str:
    """A time for people: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / HOUR:.1f} h"


def waiting_cells(waiting: WaitingTimes) -> tuple[str, ...]:
    """The cells of a row: gangs, those that never started, median, 95th percentile, longest."""
    times = (waiting.median, waiting.p95, waiting.longest)
    return (str(waiting.gangs), str(waiting.never_started), *map(duration, times))


def _text(text: str) -> str:
    return html.escape(printable(text))


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th scope=col>{_text(each)}" for each in headings)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}" for cell in row) for row in rows)
    return f"<table><thead><tr>{head}</thead><tbody>{body}</tbody></table>"


def _usage_chart(report: SimulationReport) -> str:
    """GPUs in use (area) and GPUs that gangs wait for (line) over time."""
    return _plot(
        report,
        area=[sample.allocated for sample in report.samples],
        line=[sample.requested for sample in report.samples],
        label="GPUs allocated and requested",
        legend="area: allocated GPUs; line: requested GPUs, cut off at the number of GPUs",
    )


def _fragmentation_chart(report: SimulationReport) -> str:
    """GPUs free on nodes in part use (area) and on the emptiest node (line) over time."""
    return _plot(
        report,
        area=[sample.fragmented for sample in report.samples],
        line=[sample.largest_free for sample in report.samples],
        label="Fragmented GPUs",
        legend="area: idle GPUs on partly used nodes; line: on the emptiest node",
    )


def _plot(
    report: SimulationReport,
    *,
    area: Sequence[float],
    line: Sequence[float],
    label: str,
    legend: str,
) -> str:
    top, hours = max(report.gpus, 1.0), report.hours
    return (
        f'<svg viewBox="-50 -20 {WIDTH + 60} {HEIGHT + 50}" role=img '
        f'aria-label="{label} over {hours:g} hours">'
        f'<polygon class=used points="0,{HEIGHT} {_points(area, top)} {WIDTH},{HEIGHT}"/>'
        f'<polyline class=waiting points="{_points(line, top)}"/>'
        f"<line class=axis x1=0 y1={HEIGHT} x2={WIDTH} y2={HEIGHT} />"
        f"<text x=-8 y=5 text-anchor=end>{top:g}</text>"
        f"<text x=-8 y={HEIGHT} text-anchor=end>0</text>"
        f"<text x={WIDTH} y={HEIGHT + 20} text-anchor=end>{hours:g} h</text>"
        f"<text x=0 y={HEIGHT + 20}>{legend}</text></svg>"
    )


def _points(values: Sequence[float], most: float) -> str:
    distance = WIDTH / max(len(values) - 1, 1)
    return " ".join(
        f"{round(distance * at)},{HEIGHT - HEIGHT * min(value / most, 1):.1f}"
        for at, value in enumerate(values)
    )
