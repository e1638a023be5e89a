"""Audiences that print: plain lines for people and logs, JSON lines for machines."""

from typing import TextIO

import msgspec

from kai_py.demo.events import AnyHappening, QueuesChanged, StepBegan, Told
from kai_py.demo.rendering import counts, line_of, queue_text, summary_lines
from kai_py.observe.live.feed import Line, sentence


class PlainPrinter:
    """One line per event; before each step what the queues use."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._queues: QueuesChanged | None = None

    def __call__(self, happening: AnyHappening) -> None:
        """Print what happened."""
        match happening:
            case QueuesChanged():
                self._queues = happening
            case StepBegan() | Told():
                self._print_queues(happening.time)
        line = line_of(happening)
        if line is not None:
            self._print(plain(line))
        if isinstance(happening, Told):
            self._print_summary(happening)

    def _print_queues(self, time: float) -> None:
        for queue in self._queues.queues if self._queues is not None else ():
            self._print(f"{time:7.2f}s  {'Queue':<17} {queue_text(queue)}")

    def _print_summary(self, told: Told) -> None:
        for shown, sentence_ in summary_lines(told):
            self._print(f"{'shown  ' if shown else 'MISSING'}  {sentence_}")
        self._print(counts(told))

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class JsonPrinter:
    """One JSON object per happening and line; ``type`` tells which."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._encoder = msgspec.json.Encoder()

    def __call__(self, happening: AnyHappening) -> None:
        """Print what happened."""
        print(self._encoder.encode(happening).decode(), file=self._stream, flush=True)


def plain(line: Line) -> str:
    """A line without colours."""
    return f"{line.time:7.2f}s  {line.word:<17} {sentence(line)}"
