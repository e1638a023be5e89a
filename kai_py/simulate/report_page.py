"""The report as one HTML page: no script, nothing fetched, light and dark."""

import html
from collections.abc import Callable, Iterable, Sequence

from kai_py.simulate.report import Report, Waiting
from kai_py.simulate.simulation import HOUR, Moment, Result

WIDTH, HEIGHT = 900, 220
POINTS = 600

_STYLE = """
:root { color-scheme: light dark; --used: #2f7d4f; --waiting: #c2571a; --line: #8888; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
svg { width: 100%; height: auto; } .used { fill: var(--used); } text { fill: currentColor; }
.waiting { fill: none; stroke: var(--waiting); stroke-width: 2; } .axis { stroke: var(--line); }
"""


def report_page(result: Result, report: Report, *, title: str) -> str:
    """The whole page."""
    queues = [
        (
            queue.queue,
            f"{queue.received:.1f}",
            f"{queue.entitled:.1f}",
            str(queue.evicted_pods),
            f"{queue.lost_gpu_hours:.1f}",
            *_waiting_cells(queue.waiting),
        )
        for queue in report.queues
    ]
    sizes = [(name, *_waiting_cells(waiting)) for name, waiting in report.by_size.items()]
    waiting_headings = ("gangs", "never started", "median wait", "p95 wait", "longest wait")
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{report.hours:g} hours of {report.gpus:g} GPUs: {report.used:.1%} used, "
        f"{report.idle_while_waiting:.1%} free while gangs waited for as many, "
        f"Jain's fairness index {report.jain:.3f}, "
        f"{report.lost_gpu_hours:.1f} GPU-hours lost to evictions.</p>",
        _chart(result),
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
        "<h2>Waiting by GPUs of the gang</h2>",
        _table(("GPUs", *waiting_headings), sizes),
    ]
    if report.cost:
        costs = [(sort, f"{price:,.0f}") for sort, price in report.cost.items()]
        parts += ["<h2>Cost of the nodes</h2>", _table(("kind", "cost"), costs)]
    head = f"<meta charset=utf-8><title>{html.escape(title)}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def duration(seconds: float) -> str:
    """A time that people can read: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / HOUR:.1f} h"


def _waiting_cells(waiting: Waiting) -> tuple[str, ...]:
    times = (waiting.median, waiting.p95, waiting.longest)
    return (str(waiting.gangs), str(waiting.never_started), *map(duration, times))


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th scope=col>{html.escape(each)}" for each in headings)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in row) for row in rows)
    return f"<table><thead><tr>{head}</thead><tbody>{body}</tbody></table>"


def _chart(result: Result) -> str:
    """GPUs in use (area) and GPUs that gangs wait for (line) over time."""
    used = _sampled(result, lambda moment: moment.used)
    waiting = _sampled(result, lambda moment: moment.waiting)
    most = max(result.gpus, 1.0)
    area = " ".join(f"{x},{HEIGHT - HEIGHT * min(y / most, 1):.1f}" for x, y in used)
    line = " ".join(f"{x},{HEIGHT - HEIGHT * min(y / most, 1):.1f}" for x, y in waiting)
    hours = result.scenario.hours
    return (
        f'<svg viewBox="-50 -20 {WIDTH + 60} {HEIGHT + 50}" role=img '
        f'aria-label="GPUs in use and waited for over {hours:g} hours">'
        f'<polygon class=used points="0,{HEIGHT} {area} {WIDTH},{HEIGHT}"/>'
        f'<polyline class=waiting points="{line}"/>'
        f"<line class=axis x1=0 y1={HEIGHT} x2={WIDTH} y2={HEIGHT} />"
        f"<text x=-8 y=5 text-anchor=end>{most:g}</text>"
        f"<text x=-8 y={HEIGHT} text-anchor=end>0</text>"
        f"<text x={WIDTH} y={HEIGHT + 20} text-anchor=end>{hours:g} h</text>"
        f"<text x=0 y={HEIGHT + 20}>area: GPUs in use; line: GPUs waited for, "
        "cut off at the number there is</text></svg>"
    )


def _sampled(result: Result, view: Callable[[Moment], float]) -> list[tuple[int, float]]:
    """(x, value) at equal distances; each is the value that held then."""
    end, found, index, value = result.scenario.hours * HOUR, [], 0, 0.0
    for point in range(POINTS + 1):
        now = end * point / POINTS
        while index < len(result.moments) and result.moments[index].seconds <= now:
            value = view(result.moments[index])
            index += 1
        found.append((round(WIDTH * point / POINTS), value))
    return found
