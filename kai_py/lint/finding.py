"""What is wrong where? One finding, one line."""

import enum
from dataclasses import dataclass


class Severity(enum.StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """The API rejects it, drops it in silence, or it can never do what it says."""
    HINT = "hint"
    """Valid, but perhaps not what was meant, or in need of something outside the file."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found in one object of a file."""

    line: int
    """Line in the file, from 1."""
    subject: str
    """The object, as ``Kind/name``; empty for the file itself."""
    field: str
    """Path of the field as it stands in the file."""
    message: str
    """What happens and what to do."""
    severity: Severity = Severity.ERROR
    fixed: bool = False
    """Whether the valid form has it corrected."""

    def text(self, file: str) -> str:
        """Write the finding as one line, ``file:line: Kind/name: field: message``."""
        place = ": ".join(
            part for part in (f"{file}:{self.line}", self.subject, self.field) if part
        )
        hint = "hint: " if self.severity is Severity.HINT else ""
        return f"{place}: {hint}{' '.join(self.message.split())}"
