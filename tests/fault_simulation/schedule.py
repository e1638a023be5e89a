"""What a simulation is made of, as data: settings, load and faults; drawn from a seed.

A schedule is JSON: it is printed when a simulation fails, shrunk, kept in ``kept/`` and replayed.
"""

import enum
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

HOUR = 3600.0


class Effect(enum.StrEnum):
    """What goes wrong."""

    OUTAGE = "outage"
    """The API server is away: connections are cut, calls are refused."""
    COMPACTION = "compaction"
    """Its history is dropped: watches that return get 410."""
    PARTITION = "partition"
    """Nothing passes between a process and the server; nothing is refused either."""
    LOSE_REQUEST = "lose request"
    LOSE_ANSWER = "lose answer"
    """The server does it, the answer never comes."""
    REPEAT = "repeat"
    """The request arrives twice, the second time later."""
    LATE = "late"
    """The request arrives after the caller has given up, and perhaps read again."""
    SLOW = "slow"
    ERROR = "error"
    """The server does nothing but complain."""
    ERROR_AFTER = "error after"
    """The server does it and complains."""
    HOLD_WATCH = "hold watch"
    """The watches of a kind stay open and silent; what they held back comes afterwards."""
    CUT_WATCH = "cut watch"
    TEAR_WATCH = "tear watch"
    """Cut in the middle of a line."""
    EXPIRE_WATCH = "expire watch"
    """An ERROR event with 410."""
    KILL = "kill"
    STOP = "stop"
    """SIGTERM: finish what is under way, then restart."""
    FREEZE = "freeze"
    CORDON = "cordon"
    """A node takes no new pods."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault from ``at`` on (seconds), for ``seconds``.

    ``process``, ``verb`` and ``kind`` restrict it, empty for all. With ``after`` (``verb kind``) it
    begins with the first such call from then on. ``share`` of the matching calls are hit.
    """

    effect: Effect
    at: float
    seconds: float = 0.0
    process: str = ""
    verb: str = ""
    kind: str = ""
    error: int = 0
    share: float = 1.0
    after: str = ""
    node: str = ""


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Job that is submitted."""

    at: float
    name: str
    pods: int
    queue: str
    seconds: float
    claim: str = ""
    """``own``: a claim per pod from a template; ``shared``: one claim for all; else extended
    resources."""
    gpus: int = 1
    priority: int = 0
    min_available: int = 0


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cluster and its schedulers; times in seconds."""

    seed: int
    hours: float
    replicas: int = 1
    nodes: int = 3
    gpus: int = 4
    shuffled: bool = False
    latency: float = 0.002
    lease: tuple[float, float, float] = (60.0, 40.0, 10.0)
    hour_of_day: int = 0
    """At its start; there is more to do by day."""


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole simulation."""

    settings: Settings
    load: tuple[Work, ...] = ()
    faults: tuple[Fault, ...] = ()


def read_schedule(path: Path) -> Schedule:
    """Read a kept schedule."""
    return msgspec.json.decode(path.read_bytes(), type=Schedule)


def format_schedule(schedule: Schedule) -> str:
    """One fault and one Job a line, to be read and compared."""
    return msgspec.json.format(msgspec.json.encode(schedule), indent=1).decode() + "\n"


def draw(seed: int, hours: float) -> Schedule:
    """The schedule of a seed."""
    chance = random.Random(f"schedule/{seed}")
    settings = _draw_settings(chance, seed, hours)
    load = tuple(_draw_load(chance, settings))
    return Schedule(settings, load, tuple(sorted(_draw_faults(chance, settings), key=_time)))


def _time(fault: Fault) -> float:
    return fault.at


def _draw_settings(chance: random.Random, seed: int, hours: float) -> Settings:
    return Settings(
        seed=seed,
        hours=hours,
        replicas=chance.choice((1, 2, 2, 3)),
        nodes=chance.randint(2, 4),
        gpus=chance.choice((2, 4, 8)),
        shuffled=chance.random() < 0.5,
        latency=chance.choice((0.001, 0.005, 0.05)),
        lease=chance.choice(LEASES),
        hour_of_day=chance.randrange(24),
    )


LEASES = ((15.0, 10.0, 2.0), *2 * ((60.0, 40.0, 10.0),), *3 * ((60.0, 40.0, 15.0),))
"""Duration, renewal and retry; the first are the defaults, of which an hour has most calls."""


class Hours(NamedTuple):
    """Hours of a day: how often Jobs are submitted and storms of faults begin, per hour."""

    first: int
    submissions: float
    storms: float


DAY = (
    Hours(0, submissions=0.25, storms=1.0),
    Hours(7, submissions=1.0, storms=2.0),
    Hours(9, submissions=2.0, storms=3.5),
    Hours(12, submissions=1.5, storms=2.0),
    Hours(14, submissions=2.0, storms=3.5),
    Hours(18, submissions=1.0, storms=1.5),
    Hours(22, submissions=0.25, storms=1.0),
)
BUSY_GPUS = 24
"""GPUs for which this is meant: a smaller cluster gets fewer Jobs."""
BURST = (3, 4, 6)
"""Jobs that are submitted at once in a burst; most of the time it is one to three."""
QUEUES = {"research": (0.5, 1.0), "product": (0.25, 0.75), "batch": (0.0, 1.0)}
"""Queues, and the parts of the cluster that they deserve and may have."""


def _times(chance: random.Random, settings: Settings, rates: Sequence[float]):
    """Moments of a Poisson process; ``rates``: events per hour, of the hours of a day."""
    most, at, end = max(rates), 0.0, settings.hours * HOUR
    while (at := at + chance.expovariate(most / HOUR)) < end:
        hour = int(settings.hour_of_day + at / HOUR) % 24
        if chance.random() * most < rates[hour]:
            yield at


def _rates(of: Callable[[Hours], float]) -> list[float]:
    return [of(max(each for each in DAY if each.first <= hour)) for hour in range(24)]


def _draw_load(chance: random.Random, settings: Settings):
    number, capacity = 0, settings.nodes * settings.gpus
    # What keeps a large cluster busy would leave a small one with a queue that never ends.
    rates = _rates(lambda hours: hours.submissions * min(1.0, capacity / BUSY_GPUS))
    for at in (30.0, *_times(chance, settings, rates)):
        jobs = chance.choice(BURST) if chance.random() < 0.1 else chance.choice((1, 1, 1, 2, 3))
        for _ in range(jobs):
            gpus = chance.choice((1, 1, 1, 2))
            most = max(1, capacity // (2 * gpus))
            pods = min(chance.choice((1, 2, 3, 4, 6, 8)), most)
            yield Work(
                at=round(at + chance.uniform(0, 5), 3),
                name=f"job-{number}",
                pods=pods,
                queue=chance.choice(tuple(QUEUES)),
                seconds=round(chance.choice((60, 300, 600, 1800)) * chance.uniform(0.5, 1.5)),
                claim=chance.choice(("own", "own", "own", "shared", "")),
                gpus=gpus,
                priority=chance.choice((0, 0, 0, 100)),
                min_available=chance.choice((0, 0, 0, max(1, pods // 2))),
            )
            number += 1


ERRORS = (401, 403, 404, 409, 410, 422, 429, 500, 503, 504, 0)
"""Codes of injected errors; 0 is a body that is no JSON."""
KINDS = ("Pod", "Pod", "ResourceClaim", "ResourceClaim", "Node", "Queue", "Job", "ResourceSlice")
WRITES = ("create Pod/binding", "patch ResourceClaim/status", "patch ResourceClaim")
LENGTHS = (5.0, 20.0, 35.0, 38.0, 42.0, 60.0, 120.0, 300.0)
CALL_TROUBLE = (
    Effect.LOSE_REQUEST,
    Effect.LOSE_ANSWER,
    Effect.REPEAT,
    Effect.LATE,
    Effect.SLOW,
    Effect.ERROR,
    Effect.ERROR_AFTER,
)


def _draw_faults(chance: random.Random, settings: Settings):
    for at in _times(chance, settings, _rates(lambda hours: hours.storms)):
        draw_storm = chance.choice(STORMS)
        yield from draw_storm(chance, settings, round(max(at, 60.0), 3))


def _process(chance: random.Random, settings: Settings) -> str:
    return chance.choice(("", *(f"replica-{number}" for number in range(settings.replicas))))


def _watch_trouble(chance, settings, at):
    """One kind's watch by itself is late, for longer than every grace; or cut, torn, expired."""
    kind, after = chance.choice(KINDS), chance.choice(("", *WRITES))
    yield Fault(
        Effect.HOLD_WATCH,
        at,
        chance.choice((20.0, 45.0, 90.0, 200.0, 600.0)),
        process=_process(chance, settings),
        kind=kind,
        after=after,
    )


def _watch_cuts(chance, settings, at):
    for number in range(chance.randint(1, 4)):
        effect = chance.choice((Effect.CUT_WATCH, Effect.TEAR_WATCH, Effect.EXPIRE_WATCH))
        kind = chance.choice((*KINDS, ""))
        yield Fault(effect, at + 7.0 * number, kind=kind, process=_process(chance, settings))


def _outage(chance, settings, at):
    """The API server is restarted, perhaps in the middle of bindings, perhaps without history."""
    after, length = chance.choice(("", *WRITES)), float(chance.randint(0, 120))
    if after:
        verb, kind = after.split(" ")
        yield Fault(Effect.LOSE_ANSWER, at, 2.0, verb=verb, kind=kind, after=after)
    yield Fault(Effect.OUTAGE, at, length, after=after)
    if chance.random() < 0.5:
        yield Fault(Effect.COMPACTION, at, after=after)


def _ambiguous_writes(chance, settings, at):
    """Answers to writes are lost, and what is asked afterwards is answered by an error."""
    after = chance.choice(WRITES)
    verb, kind = after.split(" ")
    length = chance.choice(LENGTHS)
    effect = chance.choice((Effect.LOSE_ANSWER, Effect.ERROR_AFTER, Effect.LATE, Effect.REPEAT))
    yield Fault(
        effect, at, length, verb=verb, kind=kind, after=after, error=chance.choice((500, 504))
    )
    if chance.random() < 0.7:
        read = "Pod" if kind == "Pod/binding" else "ResourceClaim"
        error = chance.choice(ERRORS)
        yield Fault(Effect.ERROR, at, length, verb="get", kind=read, error=error, after=after)


def _late_writes(chance, settings, at):
    """A write is given up, because it is refused when it is sent again, and arrives after that."""
    after = chance.choice(WRITES)
    verb, kind = after.split(" ")
    yield Fault(Effect.LATE, at, 5.0, verb=verb, kind=kind, after=after)
    yield Fault(
        Effect.ERROR,
        at,
        chance.choice((35.0, 90.0, 180.0)),
        verb=verb,
        kind=kind,
        after=after,
        error=chance.choice(ERRORS),
    )


def _lease_trouble(chance, settings, at):
    """Calls for the lease, of one replica or all, are lost, late, repeated or refused."""
    for _ in range(chance.randint(1, 2)):
        yield Fault(
            chance.choice(CALL_TROUBLE),
            at,
            chance.choice(LENGTHS),
            process=_process(chance, settings),
            verb=chance.choice(("", "", "get", "create", "patch")),
            kind="Lease",
            error=chance.choice(ERRORS),
            share=chance.choice((0.3, 1.0)),
        )


def _flaky_calls(chance, settings, at):
    effects = (Effect.LOSE_REQUEST, Effect.LOSE_ANSWER, Effect.ERROR, Effect.SLOW, Effect.REPEAT)
    for _ in range(chance.randint(1, 3)):
        yield Fault(
            chance.choice((*effects, Effect.LATE)),
            at,
            chance.choice(LENGTHS),
            process=_process(chance, settings),
            verb=chance.choice(("", "", "get", "patch", "create", "watch")),
            kind=chance.choice(("", "", "Pod", "ResourceClaim", "Lease", "Pod/binding")),
            error=chance.choice(ERRORS),
            share=chance.choice((0.1, 0.3, 1.0)),
        )


def _process_trouble(chance, settings, at):
    after = chance.choice(("", *WRITES))
    effect = chance.choice((Effect.KILL, Effect.KILL, Effect.STOP, Effect.FREEZE, Effect.PARTITION))
    processes = [f"replica-{number}" for number in range(settings.replicas)]
    if effect in (Effect.FREEZE, Effect.KILL):
        processes += ["controllers", "kubelets"]
    yield Fault(effect, at, chance.choice(LENGTHS), process=chance.choice(processes), after=after)


def _cordon(chance, settings, at):
    node = f"node-{chance.randrange(settings.nodes)}"
    yield Fault(Effect.CORDON, at, chance.choice((60.0, 600.0)), node=node)


STORMS = (
    _watch_trouble,
    _watch_trouble,
    _watch_cuts,
    _outage,
    _outage,
    _ambiguous_writes,
    _ambiguous_writes,
    _late_writes,
    _lease_trouble,
    _flaky_calls,
    _process_trouble,
    _process_trouble,
    _cordon,
)
