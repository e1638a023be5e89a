"""Mutants inside imported modules: which one is active, and which test executes which."""

import builtins
import importlib.machinery
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType

from tests.mutation.mutants import SWITCH, Mutant, switched

REPOSITORY = Path(__file__).parents[2]
COLLECTION = ""
"""Stands for the name of a test while modules are imported and tests are collected."""


@dataclass(slots=True)
class Switch:
    """``active``: the number of a mutant, if any; ``executed``: numbers by the name of a test."""

    active: int | None = None
    test: str = COLLECTION
    executed: dict[str, set[int]] = field(default_factory=lambda: {COLLECTION: set()})

    def __call__(self, number: int) -> bool:
        """Whether the place takes its changed form."""
        self.executed.setdefault(self.test, set()).add(number)
        return number == self.active

    def tests_of(self, number: int) -> set[str]:
        """Tests that execute the place."""
        return {test for test, numbers in self.executed.items() if test and number in numbers}


def compile_in(mutants: Sequence[Mutant], active: int | None = None) -> Switch:
    """Have every import from now on compile ``mutants`` into their modules."""
    switch = Switch(active)
    setattr(builtins, SWITCH, switch)
    chosen: dict[str, dict[int, int]] = {}
    for number, mutant in enumerate(mutants):
        path = str(REPOSITORY / mutant.module)
        chosen.setdefault(path, {})[mutant.place] = number
    loaded = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: importlib.machinery.SourceFileLoader, name: str) -> CodeType | None:
        places = chosen.get(loader.path)
        if places is None:
            return loaded(loader, name)
        tree = switched(Path(loader.path).read_text(encoding="utf-8"), places)
        return compile(tree, loader.path, "exec")

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    return switch


def nearest_first(module: str, tests: Iterable[str], seconds: dict[str, float]) -> list[str]:
    """Tests of the module's own folder before others, quick ones first."""
    folders = Path(module).parts[1:-1]

    def key(test: str) -> tuple[int, float, str]:
        parts = Path(test.partition("::")[0]).parts[1:]
        common = 0
        for ours, theirs in zip((*folders, f"test_{Path(module).name}"), parts, strict=False):
            if ours != theirs:
                break
            common += 1
        return -common, seconds.get(test, 0.0), test

    return sorted(tests, key=key)
