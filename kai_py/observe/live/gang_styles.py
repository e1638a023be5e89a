"""Letters and colours that tell gangs apart: a shade of the queue's colour per gang.

Letters and colours are assigned in the order of first sight and never change, so that a gang can be
followed over time. Without colours the letter remains.
"""

from itertools import cycle, islice
from string import ascii_uppercase, digits

from rich.color import Color
from rich.style import Style

QUEUE_COLOURS = (
    ("#2f7de1", "#62a8ff", "#1b57b5", "#94c6ff"),
    ("#e08a1e", "#ffb84d", "#b5660b", "#ffd38a"),
    ("#2da44e", "#6fdd8b", "#1a7f37", "#a2efb5"),
    ("#9a5fe0", "#c297ff", "#7339bd", "#dcc4ff"),
    ("#d1447f", "#ff86b7", "#a32660", "#ffb7d5"),
)
"""Four shades per queue; queues beyond the last reuse them."""
LETTERS = ascii_uppercase + digits
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
