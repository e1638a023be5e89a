"""The demo's screen as an SVG picture.

The screen is drawn once, without a terminal, just before the step that ends most Jobs: by then
gangs have waited, started whole, been preempted and reclaimed.
"""

import io
import re
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from kai_py.demo.events import AnyDemoEvent, StepStarted
from kai_py.demo.live import LiveView
from kai_py.demo.observer import Observer
from kai_py.demo.run import DemoRun, EventListener
from kai_py.observe.live.cluster import LiveCluster

WIDTH, HEIGHT = 128, 40
ReadCluster = Callable[[], tuple[LiveCluster, float]]
"""The cluster now, and the time of the demo."""
STEPS_AFTER_SCREENSHOT = 2
"""Steps of the script that begin after the picture is taken."""
_REMOTE_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


class ScreenshotWriter:
    """A listener that passes events on and writes the picture to ``path``, as SVG."""

    def __init__(self, path: Path, listener: EventListener, *, speed: float) -> None:
        self._path = path
        self._listener = listener
        self._console = Console(
            width=WIDTH,
            height=HEIGHT,
            file=io.StringIO(),
            record=True,
            force_terminal=True,
            color_system="truecolor",
        )
        self._view = LiveView(self._console, speed=speed, kubeconfig=None)
        self._read_cluster: ReadCluster | None = None

    def __call__(self, event: AnyDemoEvent) -> None:
        """Handle an event; the picture shows the cluster before the step."""
        if (
            isinstance(event, StepStarted)
            and event.total - event.number == STEPS_AFTER_SCREENSHOT - 1
        ):
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
        self._console.print(self._view.draw(cluster, time, width=WIDTH, height=HEIGHT), end="")
        svg = self._console.export_svg(title="kai-py demo", theme=MONOKAI, unique_id="demo")
        self._path.write_text(_REMOTE_FONT.sub("", svg), encoding="utf-8")
