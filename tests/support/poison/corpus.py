"""The poison corpus: objects that an API server accepts, one attempt to hurt others in each file.

The first line of a file says what it tries; ``(needs …)`` names kinds that are to be defined first.
``!repeat [text, times, end]`` and ``!nested depth`` stand for texts and lists that are too long to
be written out, ``!copies [times, value]`` for as many values, or objects where it stands for a
document, each with its number in place of ``#``.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from tests.support.cluster.api import Document

FOLDER = Path(__file__).parents[2] / "corpus" / "poison"
NAMESPACE = "tenant"


class _Loader(yaml.CSafeLoader):
    """YAML with the three tags; the loader in C is ten times as fast."""


def _repeat(loader: _Loader, node: yaml.Node) -> str:
    text, times, *end = loader.construct_sequence(node)  # type: ignore[arg-type]
    return text * times + "".join(end)


def _nested(loader: _Loader, node: yaml.Node) -> list[Any]:
    value: list[Any] = []
    for _ in range(int(loader.construct_scalar(node))):  # type: ignore[arg-type]
        value = [value]
    return value


def _copies(loader: _Loader, node: yaml.Node) -> list[Any]:
    times, value = loader.construct_sequence(node, deep=True)  # type: ignore[arg-type]
    return [_numbered(value, str(number)) for number in range(times)]


def _numbered(value: Any, number: str) -> Any:
    if isinstance(value, str):
        return value.replace("#", number)
    if isinstance(value, list):
        return [_numbered(each, number) for each in value]
    if isinstance(value, dict):
        return {_numbered(key, number): _numbered(each, number) for key, each in value.items()}
    return value


_Loader.add_constructor("!copies", _copies)
_Loader.add_constructor("!repeat", _repeat)
_Loader.add_constructor("!nested", _nested)


@dataclass(frozen=True)
class Poison:
    """One file; ``needs``: which definitions it needs beside ours, KAI or frameworks."""

    path: Path
    tries: str
    needs: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.stem

    @cached_property
    def documents(self) -> tuple[Document, ...]:
        """Its objects, read when they are asked for: all files together take a second."""
        # Every construction is of a subclass of SafeLoader.
        loaded = yaml.load_all(self.path.read_text(), Loader=_Loader)
        lists = (each if isinstance(each, list) else [each] for each in loaded)
        return tuple(_with_quantity_texts(each) for some in lists for each in some)


def read(path: Path) -> Poison:
    """The case of a file, by its first line."""
    with path.open() as file:
        tries = file.readline().rstrip("\n").removeprefix("# Tries: ")
    needs = re.search(r"\(needs (\w+)\)", tries)
    return Poison(path, tries, needs[1] if needs else "")


def _with_quantity_texts(document: Any) -> Any:
    """The object with its amounts as the texts that API servers store."""
    if isinstance(document, list):
        return [_with_quantity_texts(each) for each in document]
    if not isinstance(document, dict):
        return document
    return {
        key: {name: str(amount) for name, amount in each.items()}
        if key in ("limits", "requests", "allocatable", "capacity") and _has_amounts(each)
        else _with_quantity_texts(each)
        for key, each in document.items()
    }


def _has_amounts(value: Any) -> bool:
    return isinstance(value, dict) and any(isinstance(each, int | float) for each in value.values())


def corpus() -> list[Poison]:
    """All cases, by name."""
    return [read(path) for path in sorted(FOLDER.glob("*.yaml"))]
