"""Panel of queues as bars of GPUs, all on one scale: used, borrowed, still due, and the limits."""

from rich.cells import cell_len
from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from kai_py.observe.live.cluster import LiveCluster, LiveQueue
from kai_py.observe.live.gang_styles import GangStyles

USED, BORROWED, DUE, EMPTY = "█", "▓", "░", "·"
FAIR, MAXIMUM = "◆", "┃"
FRAME = 4


def queue_panel(cluster: LiveCluster, styles: GangStyles, *, width: int) -> Panel:
    """Two lines per queue: the bar, and the numbers."""
    names = max((len(queue.name) for queue in cluster.queues), default=0) + 1
    scale = max([float(cluster.gpus), *(queue.maximum or 0.0 for queue in cluster.queues), 1.0])
    lines = [
        line
        for queue in cluster.queues
        for line in _queue(queue, styles.queue(queue.name), names, width - FRAME - names, scale)
    ]
    legend = f"{USED} allocated {BORROWED} borrowed {DUE} due {FAIR} fair {MAXIMUM} max"
    if cell_len(legend) + FRAME > width - 2:
        legend = f"{BORROWED} borrowed {DUE} due {FAIR} fair {MAXIMUM} max"
    return Panel(
        Group(*lines), title="Queues", subtitle=legend, title_align="left", subtitle_align="right"
    )


def panel_height(cluster: LiveCluster) -> int:
    """Height of the panel in lines."""
    return 2 * len(cluster.queues) + 2


def _queue(
    queue: LiveQueue, colour: str, indent: int, width: int, scale: float
) -> tuple[Text, Text]:
    head = Text(f"{queue.name:<{indent}}", style=f"bold {colour}")
    head.append_text(bar(queue, colour, width, scale))
    maximum = "" if queue.maximum is None else f" · max {_amount(queue.maximum)}"
    deserved, fair = _amount(queue.deserved), _amount(queue.fair_share)
    used = _amount(queue.allocated)
    suffix = f" of {deserved} deserved · fair {fair}{maximum}"
    if cell_len(used + suffix) > width:
        suffix = f" of {deserved}, fair {fair}{maximum.replace(' ·', ',')}"
    numbers = Text(" " * indent)
    numbers.append(used, style=f"bold {colour}")
    numbers.append(suffix, style="dim")
    for line in (head, numbers):
        line.no_wrap, line.overflow = True, "ellipsis"
    return head, numbers


def bar(queue: LiveQueue, colour: str, width: int, scale: float) -> Text:
    """The bar of a queue, ``width`` characters for ``scale`` GPUs; empty without width."""
    if width <= 0:
        return Text()

    def column(gpus: float) -> int:
        return min(round(gpus / scale * width), width)

    used, deserved = column(queue.allocated), column(queue.deserved)
    text = [EMPTY] * width
    for position in range(max(used, deserved)):
        if position >= used:
            text[position] = DUE
        else:
            text[position] = USED if position < deserved else BORROWED
    line = Text("".join(text), style=colour)
    line.stylize("#3d444d", max(used, deserved))
    _overlay(line, column(queue.fair_share), FAIR, "bold")
    if queue.maximum is not None:
        _overlay(line, column(queue.maximum), MAXIMUM, "bold red")
    return line


def _overlay(line: Text, position: int, mark: str, style: str) -> None:
    """Replace the character before ``position`` by a mark."""
    index = max(position - 1, 0)
    before, after = line[:index], line[index + 1 :]
    line.plain = ""
    line.append_text(before).append(mark, style=style).append_text(after)


def _amount(gpus: float) -> str:
    return f"{gpus:.4g}"
