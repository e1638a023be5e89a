"""The demo's screen as a picture: how does it look when the story is at its fullest?

The screen is drawn once, without a terminal, just before the step that lets go of what the story
was about: by then gangs have waited, started whole, been preempted and given room back.
"""

import io
import re
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from kai_py.demo.events import AnyHappening, StepBegan
from kai_py.demo.live import LiveView
from kai_py.demo.observer import Observer
from kai_py.demo.run import Audience, Performance
from kai_py.observe.live.cluster import Picture

WIDTH, HEIGHT = 128, 40
Look = Callable[[], tuple[Picture, float]]
"""What there is to see now, and the time of the story."""
STEPS_AFTER = 2
"""Steps of the story that begin after the picture is taken."""
_FONT_FROM_ELSEWHERE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


class Painter:
    """An audience that passes on what it hears and writes the picture to ``path``, as SVG."""

    def __init__(self, path: Path, audience: Audience, *, speed: float) -> None:
        self._path = path
        self._audience = audience
        self._console = Console(
            width=WIDTH,
            height=HEIGHT,
            file=io.StringIO(),
            record=True,
            force_terminal=True,
            color_system="truecolor",
        )
        self._view = LiveView(self._console, speed=speed, kubeconfig=None)
        self._look: Look | None = None

    def __call__(self, happening: AnyHappening) -> None:
        """Take over what happened; the picture is of the moment before its step."""
        if isinstance(happening, StepBegan) and happening.of - happening.number == STEPS_AFTER - 1:
            self._paint()
        self._view(happening)
        self._audience(happening)

    async def watch(self, performance: Performance, observer: Observer) -> None:
        """Know where to look when the moment comes."""
        gatherer = self._view.gatherer(observer)
        self._look = lambda: (gatherer.picture(observer.plan), performance.clock())

    def _paint(self) -> None:
        if self._look is None:
            return
        picture, time = self._look()
        self._console.print(self._view.draw(picture, time, width=WIDTH, height=HEIGHT), end="")
        svg = self._console.export_svg(title="kai-py demo", theme=MONOKAI, unique_id="demo")
        self._path.write_text(_FONT_FROM_ELSEWHERE.sub("", svg), encoding="utf-8")
