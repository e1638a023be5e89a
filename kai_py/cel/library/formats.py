"""Named formats: ``format.dns1123Label().validate(text)``.

``validate`` returns an optional list of problems: none if the text is valid. Source:
k8s.io/apiserver/pkg/cel/library, documentation of ``Format``; the patterns of
k8s.io/apimachinery/pkg/util/validation.
"""

import calendar
import re
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from kai_py.cel.functions import declare, function
from kai_py.cel.library.urls import request_fault
from kai_py.cel.values import GO_TYPES, KINDS, NONE, Optional

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"


class Format(Struct, frozen=True):
    """A named format."""

    name: str

    @property
    def cost(self) -> int:
        """The cost of matching ten characters."""
        return _COSTS[self.name]


KINDS[Format] = "kubernetes.NamedFormat"
GO_TYPES["kubernetes.NamedFormat"] = "*cel.Format"


Check = Callable[[str], list[str]]
"""Returns the problems of a text, in the API server's words."""


def _regular(complaint: str, examples: str, pattern: str) -> Check:
    """Check a text by a regular expression that has to match all of it."""
    compiled = re.compile(pattern, re.ASCII)
    detail = f"{complaint} (e.g. {examples}, regex used for validation is '{pattern}')"
    return lambda text: [] if compiled.fullmatch(text) else [detail]


def _limited(longest: int, unit: str, check: Check) -> Check:
    """Check the length in bytes, whatever the message calls them, before the rest."""
    problem = f"must be no more than {longest} {unit}"
    return lambda text: [problem] * (len(text.encode()) > longest) + check(text)


def _label(text: str) -> list[str]:
    has_only_dots = "." in text and not _SUBDOMAIN_FORM(text)
    return ["must not contain dots"] if has_only_dots else _LABEL_FORM(text)


def _prefix(check: Check) -> Check:
    """Check a text to which something will be appended: it may end in a dash."""
    return lambda text: check(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)


def _qualified_name(text: str) -> list[str]:
    parts = text.split("/")
    if len(parts) > 2:
        problem = _QUALIFIED_FORM("_")[0].replace("name part must", "a valid label key must", 1)
        return [
            f"{problem} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    problems = []
    if len(parts) == 2:
        prefix = _PREFIX(parts[0]) if parts[0] else ["must be non-empty"]
        problems = [f"prefix part {problem}" for problem in prefix]
    if not parts[-1]:
        problems.append("name part must be non-empty")
    elif len(parts[-1].encode()) > 63:
        problems.append("name part must be no more than 63 bytes")
    return problems + _QUALIFIED_FORM(parts[-1])


def _stated(problem: str, is_valid: Callable[[str], object]) -> Check:
    return lambda text: [] if is_valid(text) else [problem]


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    year, month, day = map(int, match.groups())
    # Python has no year 0, which is a leap year like 400.
    return 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year or 400, month)[1]


def _is_datetime(text: str) -> bool:
    day, *times = text.lower().split("t")
    return _is_date(day) and bool(times) and _TIME.fullmatch(times[0]) is not None


def _uri(text: str) -> list[str]:
    fault = request_fault(text)
    return [fault] if fault else []


_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
_TIME = re.compile(
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})", re.ASCII
)
_SIXTY_FOUR = "[A-Za-z0-9+/]"
_BASE64 = re.compile(f"({_SIXTY_FOUR}{{4}})*{_SIXTY_FOUR}{{2}}(==|{_SIXTY_FOUR}(=|{_SIXTY_FOUR}))")
_UUID = re.compile("[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_MIDDLE = "must start and end with an alphanumeric character"
_LABEL_FORM = _regular(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    f"{_MIDDLE}",
    "'my-name',  or '123-abc'",
    _LABEL,
)
_SUBDOMAIN_FORM = _regular(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    f"'.', and {_MIDDLE}",
    "'example.com'",
    rf"{_LABEL}(\.{_LABEL})*",
)
_QUALIFIED_FORM = _regular(
    f"name part must consist of alphanumeric characters, '-', '_' or '.', and {_MIDDLE}",
    "'MyName',  or 'my.name',  or '123-abc'",
    _QUALIFIED,
)
_PREFIX = _limited(253, "bytes", _SUBDOMAIN_FORM)
_DNS1123_LABEL = _limited(63, "characters", _label)
_DNS1123_SUBDOMAIN = _limited(253, "characters", _SUBDOMAIN_FORM)
_DNS1035_LABEL = _limited(
    63,
    "characters",
    _regular(
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with "
        "an alphabetic character, and end with an alphanumeric character",
        "'my-name',  or 'abc-123'",
        "[a-z]([-a-z0-9]*[a-z0-9])?",
    ),
)
_LABEL_VALUE = _regular(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    f"'.', and {_MIDDLE}",
    "'MyValue',  or 'my_value',  or '12345'",
    f"({_QUALIFIED})?",
)
_CHECKS: dict[str, Check] = {
    "dns1123Label": _DNS1123_LABEL,
    "dns1123Subdomain": _DNS1123_SUBDOMAIN,
    "dns1035Label": _DNS1035_LABEL,
    "dns1123LabelPrefix": _prefix(_DNS1123_LABEL),
    "dns1123SubdomainPrefix": _prefix(_DNS1123_SUBDOMAIN),
    "dns1035LabelPrefix": _prefix(_DNS1035_LABEL),
    "qualifiedName": _qualified_name,
    "labelValue": _limited(63, "bytes", _LABEL_VALUE),
    "uri": _uri,
    "uuid": _stated("does not match the UUID format", _UUID.fullmatch),
    "byte": _stated("invalid base64", _BASE64.fullmatch),
    "date": _stated("invalid date", _is_date),
    "datetime": _stated("invalid datetime", _is_datetime),
}


_COSTS = {
    **dict.fromkeys(
        ("dns1123Label", "dns1035Label", "dns1123LabelPrefix", "dns1035LabelPrefix"), 8
    ),
    **dict.fromkeys(("dns1123Subdomain", "dns1123SubdomainPrefix", "qualifiedName"), 15),
    **dict.fromkeys(("uuid", "date", "datetime"), 18),
    "labelValue": 10,
    "byte": 21,
    "uri": 276,
}
"""By format, a quarter of the length that the API server assumes of its regular expression."""


@function("'format.named'(string) -> optional(Format)")
def named(name: str) -> Optional:
    """The format of a name, if there is one."""
    return Optional(present=True, value=Format(name)) if name in _CHECKS else NONE


@function("Format.validate(string) -> optional(list(string))")
def validate(form: Format, text: str) -> Optional:
    """The problems of a text, none if it is valid."""
    problems = _CHECKS[form.name](text)
    return Optional(present=True, value=tuple(problems)) if problems else NONE


def _register() -> None:
    for name in _CHECKS:
        declare(f"'format.{name}'() -> Format", partial(Format, name))


_register()
