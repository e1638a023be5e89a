"""Static types of expressions, and their assignability.

A type is a name with parameters: ``int``, ``list(string)``, ``map(string, dyn)``,
``optional_type(int)``. ``dyn`` and ``google.protobuf.Any`` fit everything. A parameter such as
``A`` of ``list(A).indexOf(A)`` is a variable, bound while a call's overloads are tried: to the most
general of the types it meets.

Source: CEL specification "Gradual Type Checking"; cel-go's checker for the wording.
"""

import re
from functools import cache

from msgspec import Struct


class Type(Struct, frozen=True):
    """A static type; a variable's name starts with ``%``."""

    name: str
    params: "tuple[Type, ...]" = ()

    def __str__(self) -> str:
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(map(str, self.params))})"

    @property
    def variable(self) -> bool:
        """Whether this is a type parameter."""
        return self.name.startswith("%")

    @property
    def dynamic(self) -> bool:
        """Whether values of this type are checked only when the expression runs."""
        return self.name in {"dyn", "google.protobuf.Any", "!error!"}


DYN = Type("dyn")
ANY = Type("google.protobuf.Any")
ERROR = Type("!error!")
"""The type of a part whose error was reported: it fits every other type."""
BOOL, INT, UINT, DOUBLE = Type("bool"), Type("int"), Type("uint"), Type("double")
STRING, BYTES, NULL = Type("string"), Type("bytes"), Type("null_type")
DURATION, TIMESTAMP = Type("google.protobuf.Duration"), Type("google.protobuf.Timestamp")
QUANTITY, SEMVER = Type("kubernetes.Quantity"), Type("kubernetes.Semver")

SHORT_NAMES = {"google.protobuf.Duration": "duration", "google.protobuf.Timestamp": "timestamp",
               "google.protobuf.Any": "any", "null_type": "null"}  # fmt: skip

_NEVER_NULL = frozenset({"bool", "int", "uint", "double", "string", "bytes", "list", "map", "type"})


def list_of(element: Type) -> Type:
    """The type of a list."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """The type of a map."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """The type of an optional value."""
    return Type("optional_type", (value,))


def type_of(value: Type) -> Type:
    """The type of a type as a value."""
    return Type("type", (value,))


TYPE_NAMES = {
    "bool": BOOL, "int": INT, "uint": UINT, "double": DOUBLE, "string": STRING, "bytes": BYTES,
    "null_type": NULL, "list": list_of(DYN), "map": map_of(DYN, DYN), "type": Type("type"),
    "optional_type": optional_of(DYN), DURATION.name: DURATION, TIMESTAMP.name: TIMESTAMP,
    "net.IP": Type("net.IP"), "net.CIDR": Type("net.CIDR"),
}  # fmt: skip
"""The types that expressions can name, such as ``int`` in ``type(x) == int``."""


def describe(type_: Type) -> str:
    """The type as the checker's messages show it."""
    name = SHORT_NAMES.get(type_.name, type_.name)
    if not type_.params:
        return name
    return f"{name}({', '.join(map(describe, type_.params))})"


@cache
def parse_type(text: str) -> Type:
    """Parse a type; a single capital letter is a variable."""
    name, _, rest = text.partition("(")
    if not rest:
        return Type(f"%{name}" if re.fullmatch("[A-Z]", name) else NAMES.get(name, name))
    depth, parts, start = 0, [], 0
    for index, letter in enumerate(rest):
        if letter == "," and depth == 0:
            parts.append(rest[start:index])
            start = index + 1
        depth += (letter == "(") - (letter == ")")
    parts.append(rest[start:-1])
    return Type(NAMES.get(name, name), tuple(parse_type(part.strip()) for part in parts))


NAMES = {
    "optional": "optional_type", "duration": DURATION.name, "timestamp": TIMESTAMP.name,
    "Quantity": QUANTITY.name, "Semver": SEMVER.name, "null": NULL.name,
    "IP": "net.IP", "CIDR": "net.CIDR", "URL": "kubernetes.URL", "Format": "kubernetes.NamedFormat",
}  # fmt: skip


class Bindings:
    """The types to which type variables are bound so far."""

    def __init__(self) -> None:
        self._bound: dict[str, Type] = {}
        self._count = 0

    def fresh(self) -> Type:
        """A variable that is not used yet."""
        self._count += 1
        return Type(f"%{self._count}")

    def rename(self, type_: Type, names: dict[str, Type]) -> Type:
        """Replace the variables of a declaration by fresh ones."""
        if type_.variable:
            return names.setdefault(type_.name, self.fresh())
        if not type_.params:
            return type_
        return Type(type_.name, tuple(self.rename(part, names) for part in type_.params))

    def resolve(self, type_: Type, *, free: Type | None = None) -> Type:
        """Replace variables by the types they are bound to; unbound ones by ``free`` if given."""
        if type_.variable:
            bound = self._bound.get(type_.name)
            if bound is not None:
                return self.resolve(bound, free=free)
            return type_ if free is None else free
        if not type_.params:
            return type_
        return Type(type_.name, tuple(self.resolve(part, free=free) for part in type_.params))

    def are_assignable(self, wanted: tuple[Type, ...], given: tuple[Type, ...]) -> bool:
        """Bind variables so that every given type is assignable, or leave them as they were."""
        before = dict(self._bound)
        if len(wanted) == len(given) and all(map(self._is_assignable, wanted, given)):
            return True
        self._bound = before
        return False

    def is_assignable(self, wanted: Type, given: Type) -> bool:
        """Bind variables so that ``given`` is assignable to ``wanted``."""
        return self.are_assignable((wanted,), (given,))

    def _is_assignable(self, wanted: Type, given: Type) -> bool:
        if wanted.variable:
            return self._bind(wanted, given)
        if given.variable:
            return self._bind(given, wanted)
        if wanted.dynamic or given.dynamic:
            return True
        if NULL in (wanted, given) and not {wanted.name, given.name} & _NEVER_NULL:
            return True
        if wanted.name == "type":
            return given.name == "type"
        return (
            wanted.name == given.name
            and len(wanted.params) == len(given.params)
            and all(map(self._is_assignable, wanted.params, given.params))
        )

    def _bind(self, variable: Type, other: Type) -> bool:
        if variable == other:
            return True
        bound = self._bound.get(variable.name)
        if bound is not None:
            if not self._is_assignable(bound, other):
                return False
            if self._more_general(other, bound):
                self._bound[variable.name] = other
            return True
        if self._occurs(variable, other):
            return False
        self._bound[variable.name] = other
        return True

    def most_general(self, left: Type, right: Type) -> Type:
        """The more general of two types, ``left`` if neither is."""
        return right if self._more_general(right, left) else left

    def _more_general(self, left: Type, right: Type) -> bool:
        left, right = self.resolve(left), self.resolve(right)
        if left.dynamic or right.dynamic:
            return left.dynamic
        if left.name != right.name or len(left.params) != len(right.params) or left.variable:
            return False
        pairs = zip(left.params, right.params, strict=True)
        return any(self._more_general(*pair) for pair in pairs)

    def _occurs(self, variable: Type, other: Type) -> bool:
        other = self.resolve(other)
        return other == variable or any(self._occurs(variable, part) for part in other.params)
