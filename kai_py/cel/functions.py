"""Function declarations: overloads with their signatures and implementations.

A function is registered by the signatures of its overloads, in the notation of CEL's documents::

    @function("list(A).indexOf(A) -> int")

The static checker reads the signatures; at run time the classes of the arguments choose the
overload, so an argument of unknown type gets "no such overload" exactly where no signature fits.
"""

import re
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from kai_py.cel.types import Type, parse_type
from kai_py.cel.values import CELRuntimeError, Value, kind_of

Implementation = Callable[..., Value]
Registered = TypeVar("Registered", bound=Implementation)

_SIGNATURE = re.compile(
    r"(?:'(?P<quoted>[^']+)'|(?:(?P<target>[^']+?)\.)?(?P<name>[^.(']+))"
    r"\((?P<args>.*)\) -> (?P<result>.+)"
)


class Overload(Struct, frozen=True):
    """One signature; for a method the receiver is the first parameter."""

    params: tuple[Type, ...]
    result: Type
    method: bool


class Function(Struct, frozen=True):
    """A function's overloads, with their implementations."""

    overloads: list[tuple[Overload, Implementation]]
    chosen: dict[tuple[type, ...], Implementation | None]
    """Cache: the overload that takes arguments of these classes."""


REGISTRY: dict[str, Function] = {}
METHODS = "."
"""Methods are registered under ``.name``, functions under ``name``."""


def function(*signatures: str) -> Callable[[Registered], Registered]:
    """Register the implementation of the overloads with these signatures."""

    def register(implementation: Registered) -> Registered:
        for signature in signatures:
            declare(signature, implementation)
        return implementation

    return register


def declare(signature: str, implementation: Implementation) -> None:
    """Register one overload. A dotted name is a method unless its first part is in quotes."""
    match = _SIGNATURE.fullmatch(signature)
    assert match, signature
    target, name = match["target"], match["quoted"] or match["name"]
    texts = [target] if target else []
    texts += _split(match["args"])
    overload = Overload(
        tuple(map(parse_type, texts)), parse_type(match["result"]), target is not None
    )
    key = f"{METHODS}{name}" if target else name
    REGISTRY.setdefault(key, Function([], {})).overloads.append((overload, implementation))


def _split(args: str) -> list[str]:
    parts = re.findall(r"(?:[^,()]|\((?:[^()]|\([^()]*\))*\))+", args)
    return [part.strip() for part in parts]


def find(name: str, *, method: bool) -> Function | None:
    """The function of a name, None if there is none."""
    return REGISTRY.get(f"{METHODS}{name}" if method else name)


def choose(found: Function, args: tuple[Value, ...]) -> Implementation | None:
    """The implementation that takes arguments of these classes, None if there is none."""
    classes = tuple(map(type, args))
    try:
        return found.chosen[classes]
    except KeyError:
        kinds = tuple(map(kind_of, args))
        fitting = (
            implementation
            for overload, implementation in found.overloads
            if len(overload.params) == len(kinds) and all(map(_takes, overload.params, kinds))
        )
        found.chosen[classes] = next(fitting, None)
        return found.chosen[classes]


def _takes(param: Type, kind: str) -> bool:
    return param.variable or param.dynamic or param.name == kind


def no_overload(name: str, args: tuple[Value, ...]) -> CELRuntimeError:
    """The error for arguments that no overload takes."""
    kinds = ", ".join(map(kind_of, args))
    return CELRuntimeError(f"no such overload: {name}({kinds})")
