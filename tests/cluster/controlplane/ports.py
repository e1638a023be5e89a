"""How does a server get a port that is taken by no other between choosing and listening?

The port is bound here with SO_REUSEPORT and never listened on; the server binds it too with the
same option (`--permit-port-sharing`, `--socket-reuse-port`). While our socket is open the kernel
gives the port to no other program, and connections go to the only socket that listens.

A program without that option gets a number from below the range of which the kernel takes ports for
connections and for servers that let it choose: only another call here could choose the same.
"""

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def reserved_port() -> Iterator[int]:
    """Keep a free loopback TCP port reserved for a server that sets SO_REUSEPORT."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reservation.bind(("127.0.0.1", 0))
        yield reservation.getsockname()[1]


_CHANCE = random.Random()  # its own seed: no test that sets the global one chooses for others


def unlikely_port() -> int:
    """Give a free loopback TCP port that no program is given unless it asks for that number."""
    while True:
        port = _CHANCE.randrange(15_000, 32_000)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
