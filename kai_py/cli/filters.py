"""Validation of filter options: an unknown name is an error, not an empty table."""

from collections.abc import Iterable

from kai_py.api.problems import closest_match
from kai_py.cli.errors import CommandError


def check_known(option: str, value: str, names: Iterable[str], *, hint: str) -> None:
    """Raise CommandError unless ``value`` is empty or one of ``names``."""
    known = sorted(set(names))
    if not value or value in known:
        return
    suggestion = closest_match(value, known)
    raise CommandError(
        f"{option} {value}: not found", hint=f"did you mean {suggestion}?" if suggestion else hint
    )
