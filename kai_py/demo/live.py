"""The demo on a terminal: the live screen, its picture as SVG, and the summary after it.

For the picture the screen is drawn once, without a terminal, just before the step that ends most
Jobs: by then gangs have waited, started whole, been preempted and reclaimed.
"""

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.terminal_theme import MONOKAI
from rich.text import Text

from kai_py.demo.events import AnyDemoEvent, DemoSummary, PodChange, PodChanged, StepStarted
from kai_py.demo.observer import Observer
from kai_py.demo.rendering import feed_line, summary_counts, summary_lines
from kai_py.demo.run import DemoRun, EventListener
from kai_py.observe.live.builder import LiveClusterBuilder
from kai_py.observe.live.cluster import LiveCluster
from kai_py.observe.live.feed import Feed
from kai_py.observe.live.screen import Screen, show

FINISHED_CAPTION = "The demo has ended; cluster and scheduler keep running. Ctrl-C stops them."
NEXT_STEP = (
    "Next: kai-py demo --serve --http 127.0.0.1:8080 keeps the cluster, with a dashboard and a "
    "kubeconfig."
)
PICTURE_WIDTH, PICTURE_HEIGHT = 128, 44
"""Cells of the picture."""
STEPS_AFTER_PICTURE = 2
"""Steps of the script that begin after the picture is taken."""
_REMOTE_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
ReadCluster = Callable[[], tuple[LiveCluster, float]]
"""The cluster now, and the time of the demo."""


class LiveView:
    """A listener that updates the screen's contents, and the task that draws it."""

    def __init__(self, console: Console, *, speed: float, kubeconfig: Path | None) -> None:
        self._console = console
        self._speed = speed
        self._kubeconfig = kubeconfig
        self._feed = Feed()
        self._dashboard = ""
        self._screen = Screen(self._feed, console)
        self._caption = "The cluster is empty."
        self._step = ""
        self._bound = 0

    def __call__(self, event: AnyDemoEvent) -> None:
        """Handle an event."""
        line = feed_line(event)
        if line is not None:
            self._feed.add(line)
        match event:
            case StepStarted():
                self._step = f"{event.number}/{event.total} "
                self._caption = event.title
            case PodChanged(change=PodChange.BOUND):
                self._bound += 1
            case DemoSummary():
                self._step, self._caption = "", FINISHED_CAPTION

    def announce(self, url: str) -> None:
        """Show the dashboard's address."""
        self._dashboard = url

    def builder(self, observer: Observer) -> LiveClusterBuilder:
        """A builder for the live view of the observed cluster."""
        return LiveClusterBuilder(observer.mirror, observer.gang_of)

    def draw(self, cluster: LiveCluster, time: float, *, width: int, height: int) -> RenderableType:
        """The screen at this time of the demo."""
        return self._screen.draw(cluster, self._headline(time), width=width, height=height)

    async def watch(self, run: DemoRun, observer: Observer) -> None:
        """Draw until cancelled."""
        builder = self.builder(observer)
        await show(
            self._console,
            self._screen,
            lambda: builder.build(observer.plan),
            lambda: self._headline(run.clock()),
        )

    def _headline(self, time: float) -> Sequence[Text]:
        top = Text(no_wrap=True, overflow="ellipsis")
        top.append(" kai-py demo ", style="bold reverse")
        top.append(f"  {time:5.1f} s", style="bold")
        top.append(f"  speed x{self._speed:g}  {self._bound} pods bound", style="dim")
        caption = Text(no_wrap=True, overflow="ellipsis")
        caption.append(f" ▶ {self._step}", style="bold magenta").append(self._caption, style="bold")
        addresses = [f" {self._dashboard}"] if self._dashboard else []
        if self._kubeconfig is not None:
            addresses.append(f" kubectl --kubeconfig {self._kubeconfig} get pods -w")
        lines = [
            Text(address, style="cyan", no_wrap=True, overflow="ellipsis") for address in addresses
        ]
        return (top, caption, *lines)


class ScreenshotWriter:
    """A listener that passes events on and writes the picture to ``path``, as SVG."""

    def __init__(self, path: Path, listener: EventListener, *, speed: float) -> None:
        self._path = path
        self._listener = listener
        self._console = Console(
            width=PICTURE_WIDTH,
            height=PICTURE_HEIGHT,
            file=io.StringIO(),
            record=True,
            force_terminal=True,
            color_system="truecolor",
        )
        self._view = LiveView(self._console, speed=speed, kubeconfig=None)
        self._read_cluster: ReadCluster | None = None

    def __call__(self, event: AnyDemoEvent) -> None:
        """Handle an event; the picture shows the cluster before the step."""
        if isinstance(event, StepStarted) and event.total - event.number == STEPS_AFTER_PICTURE - 1:
            self._write()
        self._view(event)
        self._listener(event)

    async def watch(self, run: DemoRun, observer: Observer) -> None:
        """Remember how to read the cluster when the picture is due."""
        builder = self._view.builder(observer)
        self._read_cluster = lambda: (builder.build(observer.plan), run.clock())

    def _write(self) -> None:
        if self._read_cluster is None:
            return
        cluster, time = self._read_cluster()
        self._console.print(
            self._view.draw(cluster, time, width=PICTURE_WIDTH, height=PICTURE_HEIGHT), end=""
        )
        svg = self._console.export_svg(title="kai-py demo", theme=MONOKAI, unique_id="demo")
        self._path.write_text(_REMOTE_FONT.sub("", svg), encoding="utf-8")


def print_summary(console: Console, summary: DemoSummary) -> None:
    """Print what was shown, what is missing, and the counts."""
    text = Text()
    for shown, sentence in summary_lines(summary):
        text.append("✓ " if shown else "✗ ", style="bold green" if shown else "bold red")
        text.append(f"{sentence}\n")
    text.append(f"\n{summary_counts(summary)}\n", style="bold")
    text.append(f"{NEXT_STEP}", style="dim")
    console.print(Panel(text, title="kai-py demo", title_align="left", expand=False))
