"""How does a server get a port nobody else takes between choosing and listening?

The port is bound here with SO_REUSEPORT and never listened on; the server binds it too with the
same option (`--permit-port-sharing`, `--socket-reuse-port`). While our socket is open the kernel
gives the port to no other program, and connections go to the only socket that listens.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """Keep a free loopback TCP port reserved for a server that sets SO_REUSEPORT."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reservation.bind(("127.0.0.1", 0))
        yield reservation.getsockname()[1]
