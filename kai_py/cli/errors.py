"""Failures of commands: one line with the remedy, and an exit code for programs."""

import enum


class ExitCode(enum.IntEnum):
    """Exit codes of every ``kai-py`` command."""

    OK = 0
    FOUND = 1
    """The command worked and the answer is no: a finding, or a gang that cannot start."""
    USAGE = 2
    """Wrong arguments, an unreadable file, a configuration with errors."""
    CLUSTER = 3
    """The API server cannot be reached, refuses us or lacks what the command needs."""
    INTERNAL = 70
    """A fault of kai-py itself."""
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    """The output was not read to its end (``| head``), as shells say it of other programs."""


WRONG_ARGUMENTS = (400, 404)


def exit_code_of(status: int) -> ExitCode:
    """That of an answer by HTTP: a name or value that is not accepted is a wrong argument."""
    return ExitCode.USAGE if status in WRONG_ARGUMENTS else ExitCode.CLUSTER


OTHER_ADDRESS = "--http takes another address or port"
"""Hint where an address cannot be served on."""


class CommandError(Exception):
    """A command cannot go on, for a reason that the user can remove."""

    def __init__(
        self, message: str, *, hint: str = "", exit_code: ExitCode = ExitCode.USAGE
    ) -> None:
        self.hint = hint
        self.exit_code = exit_code
        super().__init__(message)

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} ({self.hint})" if self.hint else message


class UnreachableError(CommandError):
    """Nothing answers there, or not any more; it may at another time."""


class RightsMissingError(CommandError):
    """The user may not read the whole cluster; the scheduler may show the part that it may see."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=ExitCode.CLUSTER)
