"""Listeners that print: plain lines for people and logs, JSON lines for machines."""

from typing import TextIO

import msgspec

from kai_py.demo.events import AnyDemoEvent, DemoSummary, QueuesChanged, StepStarted
from kai_py.demo.rendering import feed_line, queue_text, summary_counts, summary_lines
from kai_py.observe.live.feed import FeedLine, line_text


class PlainPrinter:
    """One line per event, and the queues' usage before each step."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._queues: QueuesChanged | None = None

    def __call__(self, event: AnyDemoEvent) -> None:
        """Print an event."""
        match event:
            case QueuesChanged():
                self._queues = event
            case StepStarted() | DemoSummary():
                self._print_queues(event.time)
        line = feed_line(event)
        if line is not None:
            self._print(plain_text(line))
        if isinstance(event, DemoSummary):
            self._print_summary(event)

    def _print_queues(self, time: float) -> None:
        for queue in self._queues.queues if self._queues is not None else ():
            self._print(f"{time:7.2f}s  {'Queue':<17} {queue_text(queue)}")

    def _print_summary(self, summary: DemoSummary) -> None:
        for shown, sentence in summary_lines(summary):
            self._print(f"{'shown  ' if shown else 'MISSING'}  {sentence}")
        self._print(summary_counts(summary))

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class JsonPrinter:
    """One JSON object per event and line; ``type`` is the kind of event."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._encoder = msgspec.json.Encoder()

    def __call__(self, event: AnyDemoEvent) -> None:
        """Print an event."""
        print(self._encoder.encode(event).decode(), file=self._stream, flush=True)


def plain_text(line: FeedLine) -> str:
    """A line without colours."""
    return f"{line.time:7.2f}s  {line.word:<17} {line_text(line)}"
