"""Ends a live screen on the key q, if standard input is a terminal.

Keys are read one by one and not echoed meanwhile; Ctrl-C stays the interrupt. The terminal's mode
is restored when the block is left.
"""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

QUIT_KEYS = b"qQ"


@contextmanager
def quit_key() -> Iterator[asyncio.Event]:
    """Yield an event that is set when q is pressed; never if standard input is not a terminal."""
    pressed = asyncio.Event()
    if not sys.stdin.isatty():
        yield pressed
        return
    terminal = sys.stdin.fileno()

    def read() -> None:
        if any(key in QUIT_KEYS for key in os.read(terminal, 64)):
            pressed.set()

    before = termios.tcgetattr(terminal)
    loop = asyncio.get_running_loop()
    tty.setcbreak(terminal)
    loop.add_reader(terminal, read)
    try:
        yield pressed
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
