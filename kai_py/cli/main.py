"""The command line ``kai-py``: the table of commands, and how failures leave the process.

A command is a module with a function ``command``, imported only when it is called, so that ``kai-py
--help`` and completion stay fast. To add one, write the module and add a line to ``COMMANDS``.

Exit codes are those of ``kai_py.cli.errors.ExitCode``.
"""

import errno
import gc
import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, NoReturn, TextIO

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from kai_py import __version__
from kai_py.api.texts import printable
from kai_py.cli.errors import CommandError, ExitCode
from kai_py.cli.sentences import say_sentence


class Command(NamedTuple):
    """One line of the table: the command's name, its module, its line in the help."""

    name: str
    module: str
    help: str
    hidden: bool = False


COMMANDS = (
    Command("demo", "kai_py.cli.demo", "Run a demo on an in-process cluster, in a minute."),
    Command("lint", "kai_py.cli.lint", "Check manifests and print their valid form."),
    Command("run", "kai_py.cli.run", "Run the scheduler until SIGTERM."),
    Command("webhook", "kai_py.cli.webhook", "Serve the admission webhooks until SIGTERM."),
    Command("queues", "kai_py.cli.queues", "List queues: fair share, allocation, pending gangs."),
    Command("gangs", "kai_py.cli.gangs", "List gangs: pods, minMember, why they are pending."),
    Command(
        "explain", "kai_py.cli.explain", "Explain why something is pending and what would help."
    ),
    Command("top", "kai_py.cli.top", "Watch GPUs, queues, gangs and events of a cluster."),
    Command("decisions", "kai_py.cli.decisions", "Print the decisions of a running scheduler."),
    Command(
        "devices", "kai_py.cli.devices", "List devices and their allocation, by node and product."
    ),
    Command("what-if", "kai_py.cli.what_if", "Simulate a change without making it."),
    Command("simulate", "kai_py.cli.simulate", "Simulate hours of a cluster in seconds."),
    Command(
        "snapshot", "kai_py.cli.snapshot", "Save the scheduler's view of the cluster to a file."
    ),
    Command(
        "audit",
        "kai_py.cli.audit",
        "Look for lost claims, devices used twice, limits exceeded.",
    ),
    Command("plan", "kai_py.cli.plan", "Print what the scheduler decides about objects in files."),
    Command("replay", "kai_py.cli.replay", "Print the plan for a snapshot, of kai-py or KAI."),
    Command("install", "kai_py.cli.install", "Print the manifests that install the scheduler."),
    Command("manifests", "kai_py.cli.install", "Former name of install.", hidden=True),
    Command("migrate", "kai_py.cli.migrate", "Show how KAI-Scheduler's objects are treated."),
    Command("crds", "kai_py.cli.crds", "Print the custom resource definitions to apply."),
    Command("queue", "kai_py.cli.queues", "The same as queues.", hidden=True),
    Command("gang", "kai_py.cli.gangs", "The same as gangs.", hidden=True),
    Command("device", "kai_py.cli.devices", "The same as devices.", hidden=True),
    Command(
        "reserve-gpu", "kai_py.cli.reserve_gpu", "Keep the GPU of a reservation pod.", hidden=True
    ),
)

COMMAND_GC_THRESHOLDS = (200_000, 20, 100)
"""Of garbage collection until the scheduler, where it runs, sets its own."""
FULL_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of writing to a stream; those of a file name the file."""

EPILOG = (
    "Exit codes: 0 done, 1 negative result, 2 wrong arguments or configuration, 3 API server "
    "error, 70 internal error, 130 interrupted, 141 the reader of the output has closed it."
)


class ReaderLeftError(Exception):
    """A BrokenPipeError: Typer would end the process with exit code 1, a negative result."""


class LazyGroup(TyperGroup):
    """A group whose commands come from the table; only the one that is called is imported."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for entry in COMMANDS:
            self.add_command(TyperCommand(entry.name, help=entry.help, hidden=entry.hidden))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command as usual, then replace the stub by the real one."""
        name, _, rest = super().resolve_command(ctx, args)
        entry = next(entry for entry in COMMANDS if entry.name == name)
        return name, load_command(entry), rest

    def make_context(self, *args: Any, **settings: Any) -> Any:
        """Read the arguments; prints the help."""
        with _reader():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that is called."""
        with _reader():
            return super().invoke(ctx)


@contextmanager
def _reader() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderLeftError from error


def load_command(entry: Command) -> Any:
    """Import a command's module and return the command for its function ``command``."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    with _without_collection():
        module = importlib.import_module(entry.module)
    app.command(entry.name, help=entry.help)(module.command)
    return typer.main.get_command(app)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Without garbage collection, in the block and of what it left: imports create no garbage.

    It would take a third of the processor time of a command. From then on it is rare: objects that
    were read from files or a cluster live as long as the command.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*COMMAND_GC_THRESHOLDS)
        if enabled:
            gc.enable()


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass
class Invocation:
    """Settings of one run of the command line, common to all commands."""

    show_trace: bool = False


def _show_trace(*, context: typer.Context, wanted: bool) -> None:
    context.obj.show_trace = wanted


@app.callback(invoke_without_command=True)
def options(
    *,
    debug: Annotated[
        bool,
        typer.Option("--debug", callback=_show_trace, help="Show the traceback of an error."),
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Schedule gangs of GPU work on Kubernetes: fair-share queues, DRA, preemption."""
    if version:
        typer.echo(f"kai-py {__version__}")
        raise typer.Exit
    del debug


def main(arguments: list[str] | None = None, *, name: str = "kai-py") -> None:
    """Run the command line, called ``name``, and leave the process; a failure is one line."""
    invocation = Invocation()
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a sign shows another one
    try:
        _catch_interrupts()
        run = typer.main.get_command(app).main
        code = run(args=arguments, prog_name=name, obj=invocation, standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code or ExitCode.OK)
    except TyperException as error:
        _fail(_usage(error), ExitCode.USAGE, show_trace=invocation.show_trace)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:  # the last line of defence: an internal error is one line
        causes = [*_causes(error)]
        for known in causes:
            if isinstance(known, CommandError):
                _fail(str(known), known.exit_code, show_trace=invocation.show_trace)
        if all(isinstance(each, BrokenPipeError | ReaderLeftError) for each in causes):
            _discard(sys.stdout)
            sys.exit(ExitCode.PIPE_CLOSED)
        if all(map(_is_full_output, causes)):
            message = f"cannot write the output: {os.strerror(errno.ENOSPC)}"
            _discard(sys.stdout)
            _fail(message, ExitCode.USAGE, show_trace=invocation.show_trace)
        message = f"internal error: {type(error).__name__}: {error} (--debug shows the trace)"
        _fail(message, ExitCode.INTERNAL, show_trace=invocation.show_trace)


def _catch_interrupts() -> None:
    """Have interrupts raise KeyboardInterrupt where ``kai_py.__main__`` has suspended that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _open_closed_streams() -> None:
    """Have the output streams that were closed before the start swallow what is written."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def _usage(error: TyperException) -> str:
    """The usage error in one line; without any arguments, print the help and exit."""
    message = error.format_message()
    if message.startswith("Usage:"):
        print(message, file=sys.stderr)
        sys.exit(ExitCode.USAGE)
    context = getattr(error, "ctx", None)
    hint = f" (see {context.command_path} -h)" if context is not None else ""
    return f"{' '.join(message.replace('Value error, ', '').split()).rstrip('.')}{hint}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """What ended the command, or each of its tasks."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _causes(each)
    else:
        yield error


def _is_full_output(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in FULL_OUTPUT and error.filename is None


def _discard(stream: TextIO) -> None:
    """Drop what is still buffered and can't be written: the interpreter would complain at exit."""
    with suppress(io.UnsupportedOperation):  # it is in memory
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fail(message: str, exit_code: ExitCode, *, show_trace: bool) -> NoReturn:
    try:
        if show_trace:
            for line in traceback.format_exc().splitlines():
                print(printable(line), file=sys.stderr)
        say_sentence(f"kai-py: {'; '.join(message.splitlines())}", err=True)
    except OSError:
        _discard(sys.stderr)
    sys.exit(exit_code)
