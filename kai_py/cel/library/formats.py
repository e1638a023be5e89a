"""Named formats: ``format.dns1123Label().validate(text)``.

``validate`` returns an optional list of problems: none if the text is valid. Source:
k8s.io/apiserver/pkg/cel/library, documentation of ``Format``; the patterns of
k8s.io/apimachinery/pkg/util/validation.
"""

import base64
import binascii
import re
from collections.abc import Callable
from datetime import date
from functools import partial

from msgspec import Struct

from kai_py.cel.functions import declare, function
from kai_py.cel.library.network import is_url
from kai_py.cel.library.times import parse_timestamp
from kai_py.cel.values import GO_TYPES, KINDS, NONE, CELRuntimeError, Optional

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"


class Format(Struct, frozen=True):
    """A named format."""

    name: str


KINDS[Format] = "kubernetes.NamedFormat"
GO_TYPES["kubernetes.NamedFormat"] = "*cel.Format"


def _matching(pattern: str, longest: int) -> Callable[[str], str]:
    compiled = re.compile(pattern, re.ASCII)

    def check(text: str) -> str:
        if len(text) > longest:
            return f"must be no more than {longest} characters"
        return "" if compiled.fullmatch(text) else f"regex used for validation is '{pattern}'"

    return check


def _prefix(check: Callable[[str], str]) -> Callable[[str], str]:
    """Check a text to which something will be appended: it may end in a dash."""
    return lambda text: check(text[:-1] + "a" if text.endswith("-") else text)


def _qualified_name(text: str) -> str:
    domain, slash, name = text.rpartition("/")
    if slash and _CHECKS["dns1123Subdomain"](domain):
        return "prefix part must be a DNS subdomain"
    return _matching(_QUALIFIED, 63)(name)


def _date(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError:
        return "invalid date"
    return "" if len(text) == 10 else "invalid date"


def _datetime(text: str) -> str:
    try:
        parse_timestamp(text)
    except CELRuntimeError:
        return "invalid datetime"
    return ""


def _byte(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return "invalid base64"
    return ""


_DNS1123_LABEL = _matching(_LABEL, 63)
_DNS1123_SUBDOMAIN = _matching(rf"{_LABEL}(\.{_LABEL})*", 253)
_DNS1035_LABEL = _matching("[a-z]([-a-z0-9]*[a-z0-9])?", 63)
_CHECKS: dict[str, Callable[[str], str]] = {
    "dns1123Label": _DNS1123_LABEL,
    "dns1123Subdomain": _DNS1123_SUBDOMAIN,
    "dns1035Label": _DNS1035_LABEL,
    "dns1123LabelPrefix": _prefix(_DNS1123_LABEL),
    "dns1123SubdomainPrefix": _prefix(_DNS1123_SUBDOMAIN),
    "dns1035LabelPrefix": _prefix(_DNS1035_LABEL),
    "qualifiedName": _qualified_name,
    "labelValue": _matching(f"({_QUALIFIED})?", 63),
    "uri": lambda text: "" if is_url(text) else "invalid URI",
    "uuid": _matching("(?i:[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12})", 36),
    "byte": _byte,
    "date": _date,
    "datetime": _datetime,
}


@function("'format.named'(string) -> optional(Format)")
def named(name: str) -> Optional:
    """The format of a name, if there is one."""
    return Optional(present=True, value=Format(name)) if name in _CHECKS else NONE


@function("Format.validate(string) -> optional(list(string))")
def validate(form: Format, text: str) -> Optional:
    """The problems of a text, none if it is valid."""
    fault = _CHECKS[form.name](text)
    return Optional(present=True, value=(fault,)) if fault else NONE


def _register() -> None:
    for name in _CHECKS:
        declare(f"'format.{name}'() -> Format", partial(Format, name))


_register()
