"""Panels of the live screen: gangs, queues and GPUs, with the letters and colours of gangs.

A gang has a letter and a shade of its queue's colour. Both are assigned in the order of first sight
and never change, so that a gang can be followed over time. Without colours the letter remains.

Gangs that run or are pending come first, then those that have finished. Queues are bars of GPUs,
all on one scale: allocated, borrowed, deserved but unused, and the limits.

GPUs are a heat map: racks side by side, a row per node, a cell per GPU.

A cell shows the letter of the gang that is allocated the GPU, in the colour of its queue: upper
case while its pod runs, lower case while it starts, a cross while it terminates.
"""

import math
from collections.abc import Sequence
from itertools import cycle, groupby, islice, zip_longest
from string import ascii_uppercase, digits

from msgspec import Struct
from rich.cells import cell_len
from rich.color import Color
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.panel import Panel
from rich.style import Style
from rich.table import Table
from rich.text import Text

from kai_py.observe.live.cluster import (
    GpuSlot,
    GpuState,
    LiveCluster,
    LiveGang,
    LiveNode,
    LiveQueue,
)

QUEUE_COLOURS = (
    ("#2f7de1", "#62a8ff", "#1b57b5", "#94c6ff"),
    ("#e08a1e", "#ffb84d", "#b5660b", "#ffd38a"),
    ("#2da44e", "#6fdd8b", "#1a7f37", "#a2efb5"),
    ("#9a5fe0", "#c297ff", "#7339bd", "#dcc4ff"),
    ("#d1447f", "#ff86b7", "#a32660", "#ffb7d5"),
)
"""Four shades per queue; queues beyond the last reuse them."""
LETTERS = ascii_uppercase + digits
BESIDE_NAMES, SHORTEST_NAME, LONGEST_STATE = 11, 8, 16
"""Cells of a gang's line: for its letter and pods, and bounds of its name and its state."""
DARK_TEXT_ABOVE = 140.0


class GangStyles:
    """Letters of gangs, and colours of queues and gangs."""

    def __init__(self) -> None:
        self._queues: dict[str, int] = {}
        self._gangs: dict[str, tuple[str, str]] = {}
        self._gangs_in_queue: dict[str, int] = {}

    def queue(self, name: str) -> str:
        """The queue's colour."""
        return QUEUE_COLOURS[self._position(name) % len(QUEUE_COLOURS)][0]

    def add(self, gang: str, queue: str) -> None:
        """Assign a gang its letter and shade, if it has none yet."""
        if gang in self._gangs:
            return
        shades = QUEUE_COLOURS[self._position(queue) % len(QUEUE_COLOURS)]
        number = self._gangs_in_queue.get(queue, 0)
        self._gangs_in_queue[queue] = number + 1
        letter = next(islice(cycle(LETTERS), len(self._gangs), None))
        self._gangs[gang] = letter, shades[number % len(shades)]

    def letter(self, gang: str) -> str:
        """The gang's letter; ``?`` for an unknown gang."""
        return self._gangs[gang][0] if gang in self._gangs else "?"

    def style(self, gang: str) -> Style:
        """Style of the gang's GPUs."""
        shade = self._gangs[gang][1] if gang in self._gangs else "#808080"
        return Style(color=_readable_on(shade), bgcolor=shade, bold=True)

    def _position(self, queue: str) -> int:
        return self._queues.setdefault(queue, len(self._queues))


def _readable_on(background: str) -> str:
    red, green, blue = Color.parse(background).get_truecolor()
    luminance = 0.299 * red + 0.587 * green + 0.114 * blue
    return "#101010" if luminance > DARK_TEXT_ABOVE else "#ffffff"


def gang_panel(cluster: LiveCluster, styles: GangStyles, *, rows: int, selected: str = "") -> Panel:
    """A panel with at most ``rows`` gangs; with the ``selected`` one, those around it in order."""
    if selected:
        return _selection_panel(cluster.gangs, styles, rows, selected)
    active = [gang for gang in cluster.gangs if not _is_done(gang)]
    done = [gang for gang in reversed(cluster.gangs) if _is_done(gang)]
    shown = (active + done)[:rows]
    hidden = len(cluster.gangs) - len(shown)
    title = "Gangs" if not hidden else f"Gangs ({hidden} more)"
    names = [gang.name for gang in shown]
    return Panel(_GangLines(shown, styles, names), title=title, title_align="left")


def _selection_panel(
    gangs: Sequence[LiveGang], styles: GangStyles, rows: int, selected: str
) -> Panel:
    keys = [gang.key for gang in gangs]
    place = keys.index(selected) if selected in keys else 0
    first = max(0, min(place - rows // 2, len(gangs) - rows))
    shown = gangs[first : first + rows]
    names = [gang.key for gang in shown]
    title = f"Gangs {place + 1} of {len(gangs)}"
    return Panel(_GangLines(shown, styles, names, selected), title=title, title_align="left")


class _GangLines(Struct, frozen=True):
    """A line per gang; long names are cut, so that pods and states can still be seen."""

    gangs: Sequence[LiveGang]
    styles: GangStyles
    names: Sequence[str]
    selected: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        states = max((len(_state(gang).plain) for gang in self.gangs), default=0)
        free = options.max_width - BESIDE_NAMES - min(states, LONGEST_STATE)
        width = min(max(map(len, self.names), default=0), max(free, SHORTEST_NAME))
        for gang, name in zip(self.gangs, self.names, strict=True):
            line = _gang(gang, self.styles, name, width)
            if gang.key == self.selected:
                line.stylize("reverse", 3)
            yield line


def _is_done(gang: LiveGang) -> bool:
    return gang.pods > 0 and gang.finished == gang.pods and not gang.terminating


def _gang(gang: LiveGang, styles: GangStyles, name: str, width: int) -> Text:
    done = _is_done(gang)
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f" {styles.letter(gang.key)} ", style="dim" if done else styles.style(gang.key))
    line.append(f" {_cut(name, width):<{width}} ", style="dim" if done else "")
    bound = gang.pods if done else gang.bound
    line.append(f"{bound:>2}/{gang.pods:<2} ", style="dim")
    return line.append_text(_state(gang))


def _cut(name: str, width: int) -> str:
    """``name`` in at most ``width`` characters; of a key (NAMESPACE/KIND/NAME) the end."""
    if len(name) <= width:
        return name
    return f"…{name[1 - width :]}" if "/" in name else f"{name[: width - 1]}…"


def _state(gang: LiveGang) -> Text:
    if _is_done(gang):
        return Text("done", style="dim")
    if gang.terminating:
        return Text(f"{gang.terminating} terminating", style="bold red")
    if gang.pending_reason:
        more = "needs more: " if gang.bound else ""
        return Text(f"{more}{gang.pending_reason}", "yellow")
    if gang.bound < gang.pods - gang.finished:
        return Text("pending", style="yellow")
    if gang.running < gang.bound:
        return Text("starting", style="cyan")
    return Text("running", style="green")


USED, BORROWED, UNUSED, EMPTY = "█", "▓", "░", "·"
FAIR, MAXIMUM = "◆", "┃"
FRAME = 4


def queue_panel(cluster: LiveCluster, styles: GangStyles, *, width: int) -> Panel:
    """Two lines per queue: the bar, and the numbers."""
    names = max((cell_len(_in_tree(queue)) for queue in cluster.queues), default=0) + 1
    scale = max([float(cluster.gpus), *(queue.maximum or 0.0 for queue in cluster.queues), 1.0])
    lines = [
        line
        for queue in cluster.queues
        for line in _queue(queue, styles.queue(queue.name), names, width - FRAME - names, scale)
    ]
    marks = [f"{USED} allocated", f"{BORROWED} borrowed", f"{UNUSED} unused", f"{FAIR} fair"]
    marks.append(f"{MAXIMUM} max")
    while marks and cell_len(" ".join(marks)) + FRAME > width:
        del marks[0]
    return Panel(
        Group(*lines),
        title="Queues",
        subtitle=" ".join(marks),
        title_align="left",
        subtitle_align="right",
    )


def queue_panel_height(cluster: LiveCluster) -> int:
    """Height of the panel in lines."""
    return 2 * len(cluster.queues) + 2


def _queue(
    queue: LiveQueue, colour: str, indent: int, width: int, scale: float
) -> tuple[Text, Text]:
    head = Text(f"{_in_tree(queue):<{indent}}", style=f"bold {colour}")
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


def _in_tree(queue: LiveQueue) -> str:
    return "  " * queue.depth + queue.name


def bar(queue: LiveQueue, colour: str, width: int, scale: float) -> Text:
    """The bar of a queue, ``width`` characters for ``scale`` GPUs; empty without width."""
    if width <= 0:
        return Text()

    def column(gpus: float) -> int:
        return round(min(gpus / scale, 1.0) * width)

    used, deserved = column(queue.allocated), column(queue.deserved)
    text = [EMPTY] * width
    for position in range(max(used, deserved)):
        if position >= used:
            text[position] = UNUSED
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
    return "unlimited" if math.isinf(gpus) else f"{gpus:.4g}"


MIN_CELL_WIDTH = 1
MAX_CELL_WIDTH = 5
NUMA_GPUS = 4
FREE = Style(color="#5a6470")
TERMINATING = Style(color="#ff5f5f", bgcolor="#3a3a3a", bold=True)

GUTTER = 3


def gpu_panel(cluster: LiveCluster, styles: GangStyles, *, width: int, rows: int) -> Panel:
    """The map in ``width`` columns, with at most ``rows`` nodes per rack."""
    racks = _racks(cluster.nodes, rows)
    names = max((len(node.name) for node in cluster.nodes), default=0)
    slots = max((len(node.slots) for node in cluster.nodes if not node.is_sum), default=0)
    cell = _cell_width(names, slots, len(racks), width - FRAME)
    grid = Table.grid(padding=(0, GUTTER, 0, 0))
    for rack, _ in racks:
        grid.add_column(rack, no_wrap=True)
    grid.add_row(*(Text(rack or "nodes", style="bold") for rack, _ in racks))
    for row in zip_longest(*(nodes for _, nodes in racks)):
        grid.add_row(*(_node(node, styles, names, cell) if node else Text() for node in row))
    title = f"GPUs {cluster.used} of {cluster.gpus} allocated"
    legend = "A runs  a starts  × terminates  · free"
    return Panel(grid, title=title, subtitle=legend, title_align="left", subtitle_align="right")


def gpu_panel_height(cluster: LiveCluster, rows: int) -> int:
    """Height of the panel in lines."""
    longest = max((len(nodes) for _, nodes in _racks(cluster.nodes, rows)), default=0)
    return longest + 3


def _racks(nodes: Sequence[LiveNode], rows: int) -> list[tuple[str, list[LiveNode]]]:
    with_gpus = [node for node in nodes if node.slots] or nodes
    racks = [(rack, list(group)) for rack, group in groupby(with_gpus, key=lambda node: node.rack)]
    return [(rack, group[:rows]) for rack, group in racks]


def _cell_width(names: int, slots: int, racks: int, width: int) -> int:
    label_width = names + len("  0/0 ") + slots // NUMA_GPUS + GUTTER
    cell_space = width // max(racks, 1) - label_width
    return max(MIN_CELL_WIDTH, min(MAX_CELL_WIDTH, cell_space // max(slots, 1)))


def _node(node: LiveNode, styles: GangStyles, names: int, cell: int) -> Text:
    line = Text(f"{node.name:<{names}} ")
    if node.is_sum:
        return line.append(f"{node.used} of {len(node.slots)} allocated", style="dim")
    for position, slot in enumerate(node.slots):
        if position and position % NUMA_GPUS == 0:
            line.append(" ")
        line.append_text(_slot(slot, styles, cell))
    line.append(f" {node.used}/{len(node.slots)}", style="dim")
    return line


def _slot(slot: GpuSlot, styles: GangStyles, cell: int) -> Text:
    letter = styles.letter(slot.gang)
    match slot.state:
        case GpuState.FREE:
            return Text("·".center(cell), style=FREE)
        case GpuState.STARTING:
            return Text(letter.lower().center(cell), style=styles.style(slot.gang))
        case GpuState.TERMINATING:
            return Text("×".center(cell), style=TERMINATING)
        case GpuState.RUNNING:
            return Text(letter.center(cell), style=styles.style(slot.gang))
