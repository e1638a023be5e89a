"""Findings of lint: one line each."""

import enum
from dataclasses import dataclass


class Severity(enum.StrEnum):
    """Severity of a finding."""

    ERROR = "error"
    """The API rejects it, drops it silently, or it can never have the intended effect."""
    HINT = "hint"
    """Valid, but perhaps not what was meant, or dependent on objects outside the file."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding on one object of a file."""

    line: int
    """Line in the file, from 1."""
    subject: str
    """The object, as ``Kind/name``; empty for the file itself."""
    field: str
    """Path of the field in the file."""
    message: str
    """What happens, and the remedy."""
    severity: Severity = Severity.ERROR
    fixed: bool = False
    """Whether the valid form has it corrected."""

    def text(self, file: str) -> str:
        """The finding as one line, ``file:line: Kind/name: field: message``."""
        location = ": ".join(
            part for part in (f"{file}:{self.line}", self.subject, self.field) if part
        )
        hint = "hint: " if self.severity is Severity.HINT else ""
        return f"{location}: {hint}{' '.join(self.message.split())}"
