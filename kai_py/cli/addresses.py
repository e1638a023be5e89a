"""Addresses to listen on: HOST:PORT, or :PORT for every address."""

from kai_py.cli.errors import CommandError


def address_of(text: str) -> tuple[str, int]:
    """Host and port of ``--http``; raises CommandError."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise CommandError(f'--http must be HOST:PORT or :PORT, is "{text}"')
    return host.strip("[]") or "0.0.0.0", int(port)
