"""Sentences of commands: one line in a pipe, as many as a terminal needs, without broken words.

This module imports little, as every command imports it.
"""

import shutil
import sys
import textwrap
from typing import TextIO

import typer

from kai_py.api.texts import printable


def say_sentence(text: str, *, err: bool = False) -> None:
    """Print a sentence, to standard error with ``err``."""
    stream = sys.stderr if err else sys.stdout
    for line in sentence_lines(printable(text), terminal_width(stream)):
        typer.echo(line, err=err)


def say_lines(text: str) -> None:
    """Print each line of ``text`` as a sentence."""
    for line in text.splitlines():
        say_sentence(line)


def sentence_lines(text: str, width: int | None) -> list[str]:
    """The lines of a sentence; all but the first are indented by two more than it is."""
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return [text] if width is None or len(text) <= width else folded(text, width, rest=indent)


def terminal_width(stream: TextIO) -> int | None:
    """The columns of the terminal to which ``stream`` goes; None if it goes to none."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def folded(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """The text in indented lines of ``width``; words are not broken: names are for copying."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
