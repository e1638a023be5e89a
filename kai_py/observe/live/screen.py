"""Layout of the whole screen: headline, GPUs, queues beside gangs, and events.

Redrawn a few times a second until cancelled.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from rich.console import Console, Group, RenderableType
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kai_py.api.texts import printable
from kai_py.observe.live import panels
from kai_py.observe.live.cluster import LiveCluster
from kai_py.observe.live.feed import Feed, FeedLine, Tone, line_text, printable_parts
from kai_py.observe.live.panels import GangStyles, gang_panel

DRAW_SECONDS = 0.15
TALL_SCREEN = 36
MIN_GANG_ROWS = 10
MIN_FEED_LINES = 3
FRAME = 4
FEED_COLUMNS = (9, 18, 4)
"""Widths of time, word and mark; the text has the rest."""
TONES = {
    Tone.STEP: "bold magenta",
    Tone.GOOD: "green",
    Tone.WAIT: "yellow",
    Tone.BAD: "bold red",
    Tone.PLAIN: "",
}


class Interaction(Struct, frozen=True):
    """The selected gang, the ``details`` shown in place of the events, and the status line."""

    selected: str = ""
    details: str = ""
    status: str = ""


NO_INTERACTION = Interaction()


class Screen:
    """Renders views; letters and colours stay the same from one to the next."""

    def __init__(self, feed: Feed, console: Console) -> None:
        self._console = console
        self._styles = GangStyles()
        self._feed = feed

    def draw(
        self,
        cluster: LiveCluster,
        headline: Sequence[Text],
        *,
        width: int,
        height: int,
        interaction: Interaction = NO_INTERACTION,
    ) -> RenderableType:
        """The screen of ``width`` by ``height`` characters."""
        cluster = printable_parts(cluster)
        for queue in cluster.queues:
            self._styles.queue(queue.name)
        for gang in cluster.gangs:
            self._styles.add(gang.key, gang.queue)
        middle = max(
            panels.queue_panel_height(cluster), MIN_GANG_ROWS + 2 if height >= TALL_SCREEN else 0
        )
        height -= bool(interaction.status)
        rows = max(height - len(headline) - middle - MIN_FEED_LINES - 5, 1)
        top = panels.gpu_panel_height(cluster, rows)
        bottom = max(height - len(headline) - top - middle, MIN_FEED_LINES)
        layout = Layout()
        layout.split_column(
            Layout(Group(*headline), size=len(headline)),
            Layout(panels.gpu_panel(cluster, self._styles, width=width, rows=rows), size=top),
            Layout(name="middle", size=middle),
            Layout(self._bottom(width, bottom - 2, interaction)),
            *([Layout(_status_line(interaction), size=1)] if interaction.status else []),
        )
        layout["middle"].split_row(
            Layout(panels.queue_panel(cluster, self._styles, width=width // 2)),
            Layout(
                gang_panel(cluster, self._styles, rows=middle - 2, selected=interaction.selected)
            ),
        )
        return layout

    def _bottom(self, width: int, rows: int, interaction: Interaction) -> Panel:
        if not interaction.details:
            return self._feed_panel(width, rows)
        title = f"{printable(interaction.selected)} (d closes)"
        return Panel(Text(interaction.details), title=title, title_align="left")

    def _feed_panel(self, width: int, rows: int) -> Panel:
        """The newest lines that fit, with long texts wrapped."""
        text_width = max(width - FRAME - sum(FEED_COLUMNS), 1)
        grid = Table.grid(padding=0)
        for column in FEED_COLUMNS:
            grid.add_column(width=column, no_wrap=True)
        grid.add_column(overflow="fold")
        shown: list[tuple[FeedLine, Text]] = []
        for line in reversed(self._feed.newest(rows)):
            folded = list(_feed_text(line).wrap(self._console, text_width))
            if len(folded) > rows and shown:
                break
            if len(folded) > rows:
                folded = folded[:rows]
                folded[-1].truncate(text_width - 1, pad=True)
                folded[-1].append("…")
            rows -= len(folded)
            shown.append((line, Text("\n").join(folded)))
        for line, text in reversed(shown):
            grid.add_row(*self._feed_columns(line), text)
        return Panel(grid, title="Events", title_align="left")

    def _feed_columns(self, line: FeedLine) -> Iterator[Text]:
        yield Text(f"{line.time:6.1f}s", style="dim")
        yield Text(line.word, style=TONES[line.tone])
        mark = Text()
        if line.gang:
            mark.append(f" {self._styles.letter(line.gang)} ", style=self._styles.style(line.gang))
        yield mark


def _status_line(interaction: Interaction) -> Text:
    status = printable(interaction.status)
    return Text(status, style="reverse", no_wrap=True, overflow="ellipsis")


def _feed_text(line: FeedLine) -> Text:
    if line.tone is Tone.STEP:
        return Text(line.text, style=TONES[line.tone])
    return Text(line_text(line))


async def show(
    console: Console, screen: Screen, cluster: Callable[[], LiveCluster],
    headline: Callable[[], Sequence[Text]],
    interaction: Callable[[], Interaction] = lambda: NO_INTERACTION,
) -> None:  # fmt: skip
    """Keep the screen up to date until cancelled, then restore the terminal."""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            width, height = console.size
            drawn = screen.draw(
                cluster(), headline(), width=width, height=height, interaction=interaction()
            )
            live.update(drawn, refresh=True)
            await asyncio.sleep(DRAW_SECONDS)
