"""How are happenings told to people? One line each; what other lines say already is left out.

Events are the source: a gang's wait is told once for the gang instead of once per pod, an eviction
per pod instead of again for its gang. Changes of single objects are for machines (``--json``).
"""

from kai_py.demo.events import (
    AnyHappening,
    EventSeen,
    JobCompleted,
    LogLine,
    QueueLine,
    StepBegan,
    Told,
)
from kai_py.observe.live.feed import Line, Tone

SCHEDULED = "Scheduled"
TONES = {
    SCHEDULED: Tone.GOOD,
    "FailedScheduling": Tone.WAIT,
    "Preempted": Tone.BAD,
    "LostRoom": Tone.BAD,
    "TookRoom": Tone.GOOD,
}


def line_of(happening: AnyHappening) -> Line | None:
    """The line for people; None for what is only for machines."""
    match happening:
        case StepBegan():
            word = f"Step {happening.number}/{happening.of}"
            return Line(happening.time, Tone.STEP, word, "", happening.title)
        case JobCompleted():
            name = happening.gang.rpartition("/")[2]
            return Line(happening.time, Tone.GOOD, "Completed", name, gang=happening.gang)
        case LogLine():
            return Line(happening.time, Tone.BAD, happening.level, "", happening.message)
        case EventSeen():
            return _event(happening)
    return None


def _event(event: EventSeen) -> Line | None:
    of_a_pod = event.kind == "Pod"
    in_a_gang = of_a_pod and not event.gang.endswith(f"/Pod/{event.name}")
    if event.reason == "FailedScheduling" and in_a_gang:
        return None
    if event.reason == "Preempted" and not of_a_pod:
        return None
    scheduled = event.reason == SCHEDULED and event.node
    return Line(
        time=event.time,
        tone=TONES.get(event.reason, Tone.BAD if event.level == "Warning" else Tone.PLAIN),
        word=event.reason,
        subject=event.name,
        text="" if scheduled else event.note,
        gang="" if event.kind == "Queue" else event.gang,
        pods=int(of_a_pod),
        nodes=(event.node,) if scheduled else (),
    )


def queue_text(queue: QueueLine) -> str:
    """A queue in a few words."""
    maximum = "" if queue.maximum is None else f", max {queue.maximum:.4g}"
    return (
        f"{queue.queue} uses {queue.allocated:.4g} of {queue.deserved:.4g} deserved GPUs "
        f"(fair share {queue.fair_share:.4g}{maximum})"
    )


def summary_lines(told: Told) -> tuple[tuple[bool, str], ...]:
    """What was shown and what is missing: (is it shown, sentence)."""
    shown = tuple((True, sentence) for sentence in told.shown)
    return shown + tuple((False, sentence) for sentence in told.missing)


def counts(told: Told) -> str:
    """The counts of the summary."""
    return (
        f"{told.pods_bound} pods bound, {told.gangs_started} gangs started whole, "
        f"{told.preemptions} pods preempted, {told.reclaims} reclaimed, "
        f"{told.jobs_completed} Jobs completed in {told.time:.1f} s"
    )
