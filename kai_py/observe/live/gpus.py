"""Panel of GPUs as a heat map: racks side by side, a row per node, a cell per GPU.

A cell shows the letter of the gang that is allocated the GPU, in the colour of its queue: upper
case while its pod runs, lower case while it starts, a cross while it terminates.
"""

from collections.abc import Sequence
from itertools import groupby, zip_longest

from rich.panel import Panel
from rich.style import Style
from rich.table import Table
from rich.text import Text

from kai_py.observe.live.cluster import GpuSlot, GpuState, LiveCluster, LiveNode
from kai_py.observe.live.gang_styles import GangStyles

MIN_CELL_WIDTH = 2
MAX_CELL_WIDTH = 5
NUMA_GPUS = 4
FREE = Style(color="#5a6470")
TERMINATING = Style(color="#ff5f5f", bgcolor="#3a3a3a", bold=True)
FRAME = 4
GUTTER = 3


def gpu_panel(cluster: LiveCluster, styles: GangStyles, *, width: int, rows: int) -> Panel:
    """The map in ``width`` columns, with at most ``rows`` nodes per rack."""
    racks = _racks(cluster.nodes, rows)
    names = max((len(node.name) for node in cluster.nodes), default=0)
    slots = max((len(node.slots) for node in cluster.nodes), default=0)
    cell = _cell_width(names, slots, len(racks), width - FRAME)
    grid = Table.grid(padding=(0, GUTTER, 0, 0))
    for rack, _ in racks:
        grid.add_column(rack, no_wrap=True)
    grid.add_row(*(Text(rack or "nodes", style="bold") for rack, _ in racks))
    for row in zip_longest(*(nodes for _, nodes in racks)):
        grid.add_row(*(_node(node, styles, names, cell) if node else Text() for node in row))
    title = f"GPUs {cluster.used} of {cluster.gpus} allocated"
    legend = "A runs  a starts  × is stopped  · free"
    return Panel(grid, title=title, subtitle=legend, title_align="left", subtitle_align="right")


def panel_height(cluster: LiveCluster, rows: int) -> int:
    """Height of the panel in lines."""
    longest = max((len(nodes) for _, nodes in _racks(cluster.nodes, rows)), default=0)
    return longest + 3


def _racks(nodes: Sequence[LiveNode], rows: int) -> list[tuple[str, list[LiveNode]]]:
    racks = [(rack, list(group)) for rack, group in groupby(nodes, key=lambda node: node.rack)]
    return [(rack, group[:rows]) for rack, group in racks]


def _cell_width(names: int, slots: int, racks: int, width: int) -> int:
    label_width = names + len("  0/0 ") + slots // NUMA_GPUS + GUTTER
    cell_space = width // max(racks, 1) - label_width
    return max(MIN_CELL_WIDTH, min(MAX_CELL_WIDTH, cell_space // max(slots, 1)))


def _node(node: LiveNode, styles: GangStyles, names: int, cell: int) -> Text:
    line = Text(f"{node.name:<{names}} ")
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
