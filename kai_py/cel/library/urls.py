"""URLs: parsed, compared and taken apart as Go does it.

A URL is a scheme with a host and a path (``http://host/path``), a scheme with anything else
(``mailto:a@b``, whose host and path are empty), or an absolute path. The query and the fragment
follow. Hosts may have percent escapes for what is not ASCII only.

Source: RFC 3986; Go's ``net/url``; k8s.io/apiserver/pkg/cel/library, documentation of ``URLs``.
"""

import ipaddress
import re
import urllib.parse
from dataclasses import dataclass, field

from msgspec import Struct

from kai_py.cel.functions import declare, function
from kai_py.cel.library.strings import quote_as_go
from kai_py.cel.values import GO_TYPES, KINDS, CELRuntimeError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WRONG_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
_ASCII_ESCAPE = re.compile("%(?!25)[0-7][0-9A-Fa-f]")
_NOT_IN_HOST = re.compile(r"""[^A-Za-z0-9\x80-\U0010ffff._~!$&'()*+,;=:\[\]<>"%-]""")
_USER = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
_PORT = re.compile("(:[0-9]*)?")
_WRITTEN_PATH = re.compile(r"[A-Za-z0-9._~$&+,/:;=@!'()*\[\]%-]*")
_PLAIN = "-._~$&+,;="
"""What is never escaped, beside letters and digits."""


class Parts(Struct, frozen=True):
    """The parts of a URL; all but the host as written."""

    scheme: str = ""
    user: str | None = None
    host: str = ""
    """With its port; without escapes."""
    path: str = ""
    opaque: str = ""
    """What follows the scheme where that is no host and no path."""
    query: str | None = None
    has_authority: bool = False


@dataclass(frozen=True, slots=True)
class URL:
    """A parsed URL, equal by its normalised text."""

    text: str
    parts: Parts = field(compare=False)


KINDS[URL] = "kubernetes.URL"
GO_TYPES["kubernetes.URL"] = "cel.URL"


@function("url(string) -> URL")
def url(text: str) -> URL:
    """Parse an absolute URI or an absolute path."""
    try:
        # A request has no fragment: its text is checked as part of the path or the query.
        _parse(text, is_request=True)
        head, mark, fragment = text.partition("#")
        parts = _parse(head, is_request=False)
        if mark:
            _check_escapes(fragment, text)
    except ValueError as fault:
        raise CELRuntimeError(f"URL parse error during conversion from string: {fault}") from None
    return URL(_normalised(parts, fragment), parts)


@function("isURL(string) -> bool")
def is_url(text: str) -> bool:
    """Whether a text is a URL, apart from what its fragment may be."""
    return not request_fault(text)


def request_fault(text: str) -> str:
    """Why a text is no URI of a request, "" if it is one."""
    try:
        _parse(text, is_request=True)
    except ValueError as fault:
        return str(fault)
    return ""


def _fault(text: str, reason: str) -> ValueError:
    return ValueError(f"parse {quote_as_go(text)}: {reason}")


def _check_escapes(part: str, text: str) -> None:
    wrong = _WRONG_ESCAPE.search(part)
    if wrong is not None:
        raise _fault(text, f"invalid URL escape {quote_as_go(wrong[0])}")


def _parse(text: str, *, is_request: bool) -> Parts:
    if _CONTROL.search(text):
        raise _fault(text, "net/url: invalid control character in URL")
    if not text and is_request:
        raise _fault(text, "empty url")
    if text == "*":
        return Parts(path="*")
    if text.startswith(":"):
        raise _fault(text, "missing protocol scheme")
    match = _SCHEME.fullmatch(text)
    scheme, rest = match.groups() if match else ("", text)
    scheme = scheme.lower()
    rest, mark, query = rest.partition("?")
    parts = Parts(scheme, query=query if mark else None)
    if not rest.startswith("/"):
        if scheme:
            return _replaced(parts, opaque=rest)
        raise _fault(text, "invalid URI for request")
    has_authority = bool(scheme) or not (is_request or rest.startswith("///"))
    if has_authority and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        user, at, host = authority.rpartition("@")
        host = _host(host, text, scheme)
        if not _USER.fullmatch(user):
            raise _fault(text, "net/url: invalid userinfo")
        _check_escapes(user, text)
        rest = slash + path
        parts = _replaced(parts, user=user if at else None, host=host, has_authority=True)
    _check_escapes(rest, text)
    return _replaced(parts, path=rest)


def _replaced(parts: Parts, **changes: object) -> Parts:
    return Parts(**{**{name: getattr(parts, name) for name in Parts.__struct_fields__}, **changes})


def _host(written: str, text: str, scheme: str) -> str:
    """The host and port without escapes."""
    if "[" in written:
        return _literal_address(written, text)
    first, last = written.find(":"), written.rfind(":")
    port = written[first if scheme in ("http", "https") else last :] if first >= 0 else ""
    if not _PORT.fullmatch(port):
        raise _fault(text, f"invalid port {quote_as_go(port)} after host")
    return _unescaped_host(written, text)


def _literal_address(written: str, text: str) -> str:
    """An IPv6 address in brackets, perhaps with a zone, and the port after it."""
    if not written.startswith("["):
        raise _fault(text, "invalid IP-literal")
    inner, bracket, port = written[1:].rpartition("]")
    if not bracket:
        raise _fault(text, "missing ']' in host")
    if not _PORT.fullmatch(port):
        raise _fault(text, f"invalid port {quote_as_go(port)} after host")
    address, mark, zone = inner.partition("%25")
    address = _unescaped_host(address, text)
    if mark:
        _check_escapes(zone, text)
        address += "%" + urllib.parse.unquote(zone)
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        reason = f"invalid host: ParseAddr({quote_as_go(address)}): unable to parse IP"
        raise _fault(text, reason) from None
    return f"[{address}]{port}"


def _unescaped_host(written: str, text: str) -> str:
    _check_escapes(written, text)
    escape, wrong = _ASCII_ESCAPE.search(written), _NOT_IN_HOST.search(written)
    if escape is not None and (wrong is None or escape.start() < wrong.start()):
        raise _fault(text, f"invalid URL escape {quote_as_go(escape[0])}")
    if wrong is not None:
        raise _fault(text, f"invalid character {quote_as_go(wrong[0])} in host name")
    return urllib.parse.unquote(written)


def _escaped(written: str, safe: str) -> str:
    return urllib.parse.quote(urllib.parse.unquote_to_bytes(written), safe=safe)


def _escaped_path(parts: Parts) -> str:
    """The path as written if all its characters may stand in one, else escaped again."""
    if _WRITTEN_PATH.fullmatch(parts.path):
        return parts.path
    return _escaped(parts.path, _PLAIN + "/:@")


def _normalised(parts: Parts, fragment: str) -> str:
    text = f"{parts.scheme}:" if parts.scheme else ""
    if parts.opaque:
        text += parts.opaque
    else:
        has_part = parts.host or parts.path or parts.user is not None
        text += "//" if parts.has_authority and has_part else ""
        if parts.user is not None:
            name, colon, password = parts.user.partition(":")
            text += f"{_escaped(name, _PLAIN)}{colon}{_escaped(password, _PLAIN)}@"
        text += urllib.parse.quote(parts.host, safe="-._~!$&'()*+,;=:[]<>\"")
        text += _escaped_path(parts)
    text += "" if parts.query is None else f"?{parts.query}"
    return f"{text}#{_escaped(fragment, _PLAIN + '/:@?!()*')}" if fragment else text


def _split_port(parts: Parts) -> tuple[str, str]:
    host, colon, port = parts.host.rpartition(":")
    if colon and re.fullmatch("[0-9]*", port):
        return host, port
    return parts.host, ""


def _hostname(value: URL) -> str:
    host, _ = _split_port(value.parts)
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _query(value: URL) -> dict[str, tuple[str, ...]]:
    """The values by their names; what is not well-formed is left out."""
    found: dict[str, tuple[str, ...]] = {}
    for part in (value.parts.query or "").split("&"):
        if part and ";" not in part and not _WRONG_ESCAPE.search(part):
            name, _, text = map(urllib.parse.unquote_plus, part.partition("="))
            found[name] = (*found.get(name, ()), text)
    return found


def _register() -> None:
    declare("URL.getScheme() -> string", lambda value: value.parts.scheme)
    declare("URL.getHost() -> string", lambda value: value.parts.host)
    declare("URL.getHostname() -> string", _hostname)
    declare("URL.getPort() -> string", lambda value: _split_port(value.parts)[1])
    declare("URL.getEscapedPath() -> string", lambda value: _escaped_path(value.parts))
    declare("URL.getQuery() -> map(string,list(string))", _query)


_register()
