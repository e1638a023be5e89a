"""IP addresses and CIDR ranges.

Source: k8s.io/apiserver/pkg/cel/library, documentation of ``IP`` and ``CIDR``.
"""

import ipaddress
import re

from msgspec import Struct

from kai_py.cel.functions import declare, function
from kai_py.cel.library.strings import quote_as_go
from kai_py.cel.values import GO_TYPES, KINDS, CELRuntimeError

_LENGTH = re.compile("0|[1-9][0-9]{0,2}")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class IP(Struct, frozen=True):
    """An address."""

    address: Address


class CIDR(Struct, frozen=True):
    """A range of addresses, with the address it was written with."""

    address: Address
    length: int


KINDS.update({IP: "net.IP", CIDR: "net.CIDR"})
GO_TYPES.update({"net.IP": "cel.IP", "net.CIDR": "cel.CIDR"})


@function("ip(string) -> IP")
def ip(text: str) -> IP:
    """Parse an address; zones and IPv4-mapped IPv6 addresses are rejected."""
    try:
        return IP(_address(text))
    except ValueError as fault:
        raise CELRuntimeError(str(fault)) from None


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
        raise CELRuntimeError(f"{_RANGE_ERROR}: {fault}") from None


@function("isCIDR(string) -> bool")
def is_cidr(text: str) -> bool:
    """Whether a text is a range."""
    try:
        _range(text)
    except ValueError:
        return False
    return True


_RANGE_ERROR = "network address parse error during conversion from string"


def _address(text: str) -> Address:
    quoted = quote_as_go(text)
    address = _parse(text)
    if address is None:
        reason = f"ParseAddr({quoted}): unable to parse IP"
        raise ValueError(f"IP Address {quoted} parse error during conversion from string: {reason}")
    if "%" in text:
        raise ValueError(f"IP address {quoted} with zone value is not allowed")
    if _is_mapped(address):
        raise ValueError(f"IPv4-mapped IPv6 address {quoted} is not allowed")
    return address


def _parse(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_mapped(address: Address) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None


def _range(text: str) -> CIDR:
    quoted = quote_as_go(text)
    head, slash, length = text.rpartition("/")
    address = _parse(head)
    if not slash:
        reason = "no '/'"
    elif address is None:
        reason = f"ParseAddr({quote_as_go(head)}): unable to parse IP"
    elif "%" in head:
        reason = "IPv6 zones cannot be present in a prefix"
    elif not _LENGTH.fullmatch(length):
        reason = f"bad bits after slash: {quote_as_go(length)}"
    elif int(length) > address.max_prefixlen:
        reason = "prefix length out of range"
    elif _is_mapped(address):
        raise ValueError(f"IPv4-mapped IPv6 address {quoted} is not allowed")
    else:
        return CIDR(address, int(length))
    raise ValueError(f"{_RANGE_ERROR}: netip.ParsePrefix({quoted}): {reason}")


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


_register()
