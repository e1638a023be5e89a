"""Cron expressions of five fields in UTC: minute, hour, day, month, weekday.

A field is ``*`` or a list of numbers and ranges, each with an optional step: ``*/15``, ``1-5``,
``0,30``. Months and weekdays have their English names too; Sunday is 0 or 7. If both the day of
the month and the weekday are restricted, a match of either is enough. ``@hourly``, ``@daily``,
``@weekly``, ``@monthly`` and ``@yearly`` are supported.

Source: crontab(5). Cost: one step per day looked back.
"""

from datetime import UTC, datetime, timedelta

from msgspec import Struct

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
MAX_DAYS_BACK = 366 * 8
"""Leap days are at most eight years apart."""


class CronError(ValueError):
    """A text is no cron expression; the message names the field."""


class Cron(Struct, frozen=True):
    """A parsed expression.

    ``either_day``: both days are restricted, so that a match of either is enough.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    def last_fired(self, now: float) -> float:
        """The last time it fired up to ``now``, seconds since the epoch; CronError if never."""
        until = datetime.fromtimestamp(now, UTC)
        for back in range(MAX_DAYS_BACK):
            day = until.date() - timedelta(days=back)
            if not self._on(day.day, day.month, day.isoweekday() % 7):
                continue
            latest = (until.hour, until.minute) if back == 0 else (23, 59)
            times = ((h, m) for h in self.hours for m in self.minutes if (h, m) <= latest)
            latest_time = max(times, default=None)
            if latest_time is not None:
                return datetime(day.year, day.month, day.day, *latest_time, tzinfo=UTC).timestamp()
        raise CronError("it never fires: no such date exists")

    def _on(self, day: int, month: int, weekday: int) -> bool:
        if month not in self.months:
            return False
        if self.either_day:
            return day in self.days or weekday in self.weekdays
        return day in self.days and weekday in self.weekdays


def parse_cron(text: str) -> Cron:
    """Parse an expression; raises CronError."""
    parts = ALIASES.get(text.strip(), text).split()
    if len(parts) != len(FIELDS):
        raise CronError(f'"{text}" must have five fields: minute hour day month weekday')
    minutes, hours, days, months, weekdays = (
        _values(part, *field) for part, field in zip(parts, FIELDS, strict=True)
    )
    either = not parts[2].startswith("*") and not parts[4].startswith("*")
    cron = Cron(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), either)
    # Raises for an expression that never fires, such as 30 February.
    cron.last_fired(0.0)
    return cron


def _values(part: str, field: str, least: int, most: int) -> frozenset[int]:
    values: set[int] = set()
    for item in part.lower().split(","):
        span, slash, step = item.partition("/")
        first, dash, last = span.partition("-")
        try:
            low = least if span == "*" else _number(first, field)
            high = most if span == "*" or (slash and not dash) else _number(last or first, field)
            stride = int(step) if slash else 1
        except ValueError:
            raise CronError(f'{field} "{item}" cannot be parsed') from None
        if not least <= low <= high <= most:
            raise CronError(f'{field} "{item}" is not within {least}-{most}')
        if stride < 1:
            raise CronError(f'{field} "{item}" cannot be parsed')
        values.update(range(low, high + 1, stride))
    return frozenset(values)


def _number(text: str, field: str) -> int:
    names = {"month": MONTHS, "weekday": WEEKDAYS}.get(field, ())
    if text in names:
        return names.index(text) + (field == "month")
    return int(text)
