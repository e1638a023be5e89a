"""The replica that answers: whether it leads, and where the leader is reached.

The leader writes its address on the Lease, so the others can pass requests on. Only those who may
write the Lease could name another address; they could also lead.
"""

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

ANY_ADDRESS = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Replica:
    """The replica that answers; ``leader`` and ``address`` of the one that leads, if it is known.

    ``name`` is unique to the process.
    """

    name: str = ""
    leads: bool = True
    leader: str = ""
    address: str = ""


def is_address(url: str) -> bool:
    """Whether ``url`` is what a replica writes: http, an IP address and a port."""
    try:
        parts = urlsplit(url)
        ipaddress.ip_address(parts.hostname or "")
        has_port = parts.port is not None
    except ValueError:
        return False
    is_plain = url == f"http://{parts.netloc}" and "@" not in url
    return parts.scheme == "http" and has_port and is_plain


def own_address(host: str, port: int, server: str) -> str:
    """The URL at which other replicas reach this one; "" if it is not known.

    Where it listens on every address, that from which the API server at the URL ``server`` is
    reached is meant. Nothing is sent to find it.
    """
    if host in ANY_ADDRESS:
        try:
            parts = urlsplit(server)
            there = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)[0]
            with socket.socket(there[0], socket.SOCK_DGRAM) as probe:
                probe.connect(there[4])
                host = probe.getsockname()[0]
        except OSError:
            return ""
    if host == "localhost":
        host = "127.0.0.1"
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return address if is_address(address) else ""
