"""IP addresses, CIDR ranges and URLs.

Source: k8s.io/apiserver/pkg/cel/library, documentation of ``IP``, ``CIDR`` and ``URLs``.
"""

import ipaddress
import re
import urllib.parse
from dataclasses import dataclass, field

from msgspec import Struct

from kai_py.cel.functions import declare, function
from kai_py.cel.library.strings import quote
from kai_py.cel.values import GO_TYPES, KINDS, CELRuntimeError

_REQUEST_URI = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
_WRONG_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class IP(Struct, frozen=True):
    """An address."""

    address: Address


class CIDR(Struct, frozen=True):
    """A range of addresses, with the address it was written with."""

    address: Address
    length: int


@dataclass(frozen=True, slots=True)
class URL:
    """A parsed URL, equal by its text."""

    text: str
    parts: urllib.parse.SplitResult = field(compare=False)


KINDS.update({IP: "net.IP", CIDR: "net.CIDR", URL: "kubernetes.URL"})
GO_TYPES.update({"net.IP": "cel.IP", "net.CIDR": "cel.CIDR", "kubernetes.URL": "cel.URL"})


@function("ip(string) -> IP")
def ip(text: str) -> IP:
    """Parse an address; zones and IPv4-mapped IPv6 addresses are rejected."""
    try:
        return IP(_address(text))
    except ValueError as fault:
        raise CELRuntimeError(
            f'IP Address "{text}" parse error during conversion: {fault}'
        ) from None


@function("isIP(string) -> bool")
def is_ip(text: str) -> bool:
    """Whether a text is an address."""
    try:
        _address(text)
    except ValueError:
        return False
    return True


@function("'ip.isCanonical'(string) -> bool")
def is_canonical(text: str) -> bool:
    """Whether an address is in its canonical form."""
    return str(ip(text).address) == text


@function("cidr(string) -> CIDR")
def cidr(text: str) -> CIDR:
    """Parse a range."""
    try:
        return _range(text)
    except ValueError as fault:
        raise CELRuntimeError(f"network address parse error during conversion: {fault}") from None


@function("isCIDR(string) -> bool")
def is_cidr(text: str) -> bool:
    """Whether a text is a range."""
    try:
        _range(text)
    except ValueError:
        return False
    return True


def _address(text: str) -> Address:
    if "%" in text:
        raise ValueError("IP address with zone value is not allowed")
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise ValueError("IPv4-mapped IPv6 address is not allowed")
    return address


def _range(text: str) -> CIDR:
    head, slash, length = text.partition("/")
    address = _address(head)
    if not slash or not length.isdecimal() or not length.isascii() or len(length) > 3:
        raise ValueError(f"{text!r} has no prefix length")
    if (length[0] == "0" and length != "0") or int(length) > address.max_prefixlen:
        raise ValueError(f"{text!r} has a bad prefix length")
    return CIDR(address, int(length))


def _network(value: CIDR) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network((value.address, value.length), strict=False)


@function("CIDR.containsIP(IP) -> bool", "CIDR.containsIP(string) -> bool")
def contains_ip(value: CIDR, other: IP | str) -> bool:
    """Whether an address is in the range."""
    address = ip(other).address if isinstance(other, str) else other.address
    return address in _network(value)


@function("CIDR.containsCIDR(CIDR) -> bool", "CIDR.containsCIDR(string) -> bool")
def contains_cidr(value: CIDR, other: CIDR | str) -> bool:
    """Whether a range is within the range."""
    inner = cidr(other) if isinstance(other, str) else other
    return inner.length >= value.length and inner.address in _network(value)


def _register() -> None:
    declare("IP.family() -> int", lambda value: value.address.version)
    declare("IP.isUnspecified() -> bool", lambda value: value.address.is_unspecified)
    declare("IP.isLoopback() -> bool", lambda value: value.address.is_loopback)
    declare("IP.isLinkLocalMulticast() -> bool", _is_link_local_multicast)
    declare("IP.isLinkLocalUnicast() -> bool", lambda value: value.address.is_link_local)
    declare("IP.isGlobalUnicast() -> bool", is_global_unicast)
    declare("CIDR.ip() -> IP", lambda value: IP(value.address))
    declare("CIDR.prefixLength() -> int", lambda value: value.length)
    declare("CIDR.masked() -> CIDR",
            lambda value: CIDR(_network(value).network_address, value.length))  # fmt: skip
    declare("string(IP) -> string", lambda value: str(value.address))
    declare("string(CIDR) -> string", lambda value: f"{value.address}/{value.length}")
    declare("URL.getScheme() -> string", lambda value: value.parts.scheme)
    declare("URL.getHost() -> string", lambda value: value.parts.netloc.rpartition("@")[2])
    declare("URL.getHostname() -> string", _hostname)
    declare("URL.getPort() -> string", _port)
    declare("URL.getEscapedPath() -> string", _escaped_path)
    declare("URL.getQuery() -> map(string,list(string))", _query)


def _is_link_local_multicast(value: IP) -> bool:
    first, second, third, *_ = value.address.packed
    if value.address.version == 4:
        return (first, second, third) == (224, 0, 0)
    # The upper half of the second byte has flags, the lower one the scope.
    return first == 0xFF and second % 16 == 2


def is_global_unicast(value: IP) -> bool:
    """Whether an address is neither special nor multicast; private ones count."""
    address = value.address
    special = address.is_unspecified or address.is_loopback or address.is_multicast
    broadcast = str(address) == "255.255.255.255"
    return not (special or address.is_link_local or broadcast)


@function("url(string) -> URL")
def url(text: str) -> URL:
    """Parse an absolute URI or an absolute path."""
    try:
        return _url(text)
    except ValueError as fault:
        raise CELRuntimeError(f"URL parse error during conversion from string: {fault}") from None


@function("isURL(string) -> bool")
def is_url(text: str) -> bool:
    """Whether a text is a URL."""
    try:
        _url(text)
    except ValueError:
        return False
    return True


def _url(text: str) -> URL:
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise ValueError(f'parse "{text}": invalid control character in URL')
    if not text:
        raise ValueError('parse "": empty url')
    parts = urllib.parse.urlsplit(text)
    if not _REQUEST_URI.match(text):
        raise ValueError(f"parse {quote(text)}: invalid URI for request")
    escape = _WRONG_ESCAPE.search(text.partition("?")[0])
    if escape:
        raise ValueError(f"parse {quote(text)}: invalid URL escape {quote(escape[0])}")
    if " " in parts.netloc:
        raise ValueError(f'parse "{text}": invalid character " " in host name')
    # Reading the port raises ValueError if it is invalid.
    _ = parts.port
    return URL(text, parts)


def _escaped_path(value: URL) -> str:
    return urllib.parse.quote(value.parts.path, safe="/%:@!$&'()*+,;=~")


def _hostname(value: URL) -> str:
    host = value.parts.netloc.rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _port(value: URL) -> str:
    return "" if value.parts.port is None else str(value.parts.port)


def _query(value: URL) -> dict[str, tuple[str, ...]]:
    found = urllib.parse.parse_qs(value.parts.query, keep_blank_values=True)
    return {key: tuple(texts) for key, texts in found.items()}


_register()
