"""Sentences of commands: one line in a pipe, as many as a terminal needs, without broken words."""

import shutil
import sys
import textwrap

import typer

from kai_py.api.printable import printable


def say_sentence(text: str, *, err: bool = False) -> None:
    """Print a sentence, to standard error with ``err``."""
    stream = sys.stderr if err else sys.stdout
    width = shutil.get_terminal_size().columns if stream.isatty() else None
    for line in sentence_lines(printable(text), width):
        typer.echo(line, err=err)


def say_lines(text: str) -> None:
    """Print each line of ``text`` as a sentence."""
    for line in text.splitlines():
        say_sentence(line)


def sentence_lines(text: str, width: int | None) -> list[str]:
    """The lines of a sentence; all but the first are indented by two more than it is."""
    if width is None or len(text) <= width:
        return [text]
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
