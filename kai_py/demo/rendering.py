"""Renders the demo's events as lines: for people, without repetitions, or as JSON.

A pending gang is reported once for the gang instead of once per pod, an eviction once per pod and
not again for its gang. Changes of single objects are for machines only (``--json``).
"""

from typing import TextIO

import msgspec

from kai_py.api.texts import printable, printable_json
from kai_py.demo.events import (
    AnyDemoEvent,
    DemoSummary,
    EventSeen,
    JobCompleted,
    LogLine,
    QueueGpus,
    QueuesChanged,
    StepStarted,
)
from kai_py.observe.live.feed import FeedLine, Tone, line_text

SCHEDULED = "Scheduled"
TONES = {
    SCHEDULED: Tone.GOOD,
    "FailedScheduling": Tone.WAIT,
    "Preempted": Tone.BAD,
    "Reclaimed": Tone.BAD,
    "Reclaiming": Tone.GOOD,
}


def feed_line(event: AnyDemoEvent) -> FeedLine | None:
    """The line for people; None for an event that is only for machines."""
    match event:
        case StepStarted():
            word = f"Step {event.number}/{event.total}"
            return FeedLine(event.time, Tone.STEP, word, "", event.title)
        case JobCompleted():
            name = event.gang.rpartition("/")[2]
            return FeedLine(event.time, Tone.GOOD, "Completed", name, gang=event.gang)
        case LogLine():
            return FeedLine(event.time, Tone.BAD, event.level, "", event.message)
        case EventSeen():
            return _event(event)
    return None


def _event(event: EventSeen) -> FeedLine | None:
    is_pod_event = event.kind == "Pod"
    in_gang = is_pod_event and not event.gang.endswith(f"/Pod/{event.name}")
    if event.reason == "FailedScheduling" and in_gang:
        return None
    if event.reason == "Preempted" and not is_pod_event:
        return None
    scheduled = event.reason == SCHEDULED and event.node
    return FeedLine(
        time=event.time,
        tone=TONES.get(event.reason, Tone.BAD if event.level == "Warning" else Tone.PLAIN),
        word=event.reason,
        subject=event.name,
        text="" if scheduled else event.note,
        gang="" if event.kind == "Queue" else event.gang,
        pods=int(is_pod_event),
        nodes=(event.node,) if scheduled else (),
    )


def queue_text(queue: QueueGpus) -> str:
    """A queue in a few words."""
    maximum = "" if queue.maximum is None else f", max {queue.maximum:.4g}"
    return (
        f"{queue.queue} has {queue.allocated:.4g} of {queue.deserved:.4g} deserved GPUs "
        f"allocated (fair share {queue.fair_share:.4g}{maximum})"
    )


def summary_lines(summary: DemoSummary) -> tuple[tuple[bool, str], ...]:
    """Sentences of the summary: (whether it was shown, sentence)."""
    shown = tuple((True, sentence) for sentence in summary.shown)
    return shown + tuple((False, sentence) for sentence in summary.missing)


def summary_counts(summary: DemoSummary) -> str:
    """The counts of the summary."""
    return (
        f"{summary.pods_bound} pods bound, {summary.gangs_started} gangs started, "
        f"{summary.preemptions} pods preempted, {summary.reclaims} reclaimed, "
        f"{summary.jobs_completed} Jobs completed in {summary.time:.1f} s"
    )


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
        print(printable(text), file=self._stream, flush=True)


class JsonPrinter:
    """One JSON object per event and line; ``type`` is the kind of event."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._encoder = msgspec.json.Encoder()

    def __call__(self, event: AnyDemoEvent) -> None:
        """Print an event."""
        line = printable_json(self._encoder.encode(event).decode())
        print(line, file=self._stream, flush=True)


def plain_text(line: FeedLine) -> str:
    """A line without colours."""
    return f"{line.time:7.2f}s  {line.word:<17} {line_text(line)}"
