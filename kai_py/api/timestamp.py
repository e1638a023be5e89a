"""Timestamps as metav1.Time: RFC 3339, UTC, whole seconds."""

from datetime import UTC, datetime


def format_time(moment: datetime | float) -> str:
    """The time, an aware UTC datetime or seconds since the epoch, truncated to seconds."""
    if not isinstance(moment, datetime):
        moment = datetime.fromtimestamp(int(moment), UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
