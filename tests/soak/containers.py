"""The containers that are reachable from objects, by the attributes that hold them."""

import functools
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import msgspec
import numpy as np

LEAVES = (
    str, bytes, int, float, bool, type(None), type, ModuleType, BuiltinFunctionType, np.ndarray,
)  # fmt: skip
WEAK = (WeakKeyDictionary, WeakSet, WeakValueDictionary)
CONTAINERS = (Mapping, AbstractSet, list, tuple, deque, *WEAK)


def container_sizes(roots: Mapping[str, object]) -> dict[str, int]:
    """How many items the containers below ``roots`` hold, summed by class and attribute.

    So a container of a thousand pods and one of two thousand differ in size, not in name.
    """
    sizes: dict[str, int] = {}
    seen: set[int] = set()
    waiting: deque[tuple[str, Any]] = deque(roots.items())
    alive = []
    while waiting:
        path, value = waiting.popleft()
        if isinstance(value, LEAVES) or id(value) in seen:
            continue
        seen.add(id(value))
        alive.append(value)
        if isinstance(value, CONTAINERS):
            sizes[path] = sizes.get(path, 0) + len(value)
        for step, each in _parts(value):
            name = type(value).__name__ if step.startswith(".") else path
            waiting.append((f"{name}{step}", each))
    return sizes


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (Mapping, WeakKeyDictionary, WeakValueDictionary)):
        yield from (("{}", each) for each in list(value.values()))
        yield from (("{key}", each) for each in list(value.keys()))
    elif isinstance(value, CONTAINERS):
        yield from (("[]", each) for each in list(value))
    elif isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield f".<{name}>", cell.cell_contents
    elif isinstance(value, MethodType):
        yield ".self", value.__self__
    elif isinstance(value, functools.partial):
        yield ".partial", (*value.args, *value.keywords.values())
    if isinstance(value, msgspec.Struct):
        yield from ((f".{name}", getattr(value, name)) for name in value.__struct_fields__)
        return
    for kind in type(value).__mro__:
        slots = getattr(kind, "__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            # Python before 3.11.3 gives ``__weakref__`` to another class than it is asked of.
            if not name.startswith("__") and hasattr(value, name):
                yield f".{name}", getattr(value, name)
    if not isinstance(value, FunctionType):
        yield from (
            (f".{name}", each) for name, each in list(getattr(value, "__dict__", {}).items())
        )


def unbounded_caches() -> list[str]:
    """Functions of the package that remember all that they were ever asked."""
    return [path for path, value in _remembering().items() if value.cache_info().maxsize is None]


def caches() -> list[Any]:
    """Functions of the package that remember the last that they were asked."""
    return [value for value in _remembering().values() if value.cache_info().maxsize is not None]


def _remembering() -> dict[str, Any]:
    return {
        f"{name}.{attribute}": value
        for name, module in sorted(sys.modules.items())
        if name.split(".")[0] == "kai_py"
        for attribute, value in vars(module).items()
        if isinstance(value, functools._lru_cache_wrapper)
    }


def module_roots() -> dict[str, object]:
    """Mutable containers that modules of the package keep."""
    return {
        f"{name}.{attribute}": value
        for name, module in sorted(sys.modules.items())
        if name.split(".")[0] == "kai_py"
        for attribute, value in vars(module).items()
        if isinstance(value, (dict, list, set, deque, *WEAK)) and not attribute.startswith("__")
    }
