"""Runs the tests that concern a mutant, as a contributor would, without data from outside."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.mutation.mutants import Mutant

REPOSITORY = Path(__file__).parents[2]
SECONDS = 600
"""After which a mutant that does not end counts as killed."""

BESIDE = {
    "policy": ("tests/policy", "tests/plan"),
    "plan": ("tests/plan", "tests/dialects"),
    "snapshot": ("tests/snapshot", "tests/dialects", "tests/plan"),
    "dra": ("tests/dra", "tests/plan"),
    "grouping": ("tests/grouping", "tests/dialects", "tests/snapshot"),
    "commit": ("tests/commit",),
}
"""Tests of a package, after those that mirror the module's folder."""

MARKERS = "not cluster and not slow and not nightly and not node"


class BaselineError(RuntimeError):
    """Tests fail without any mutant, so that they prove nothing."""


def survivors(mutants: Iterable[Mutant], *, near_only: bool = False) -> Iterator[Mutant]:
    """Those of ``mutants`` that no test notices; ``near_only``: of the module's own folder.

    Raises BaselineError.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        _copy(copy)
        sound: set[tuple[str, ...]] = set()
        for mutant in mutants:
            groups = list(_tests_of(mutant))[: 1 if near_only else None]
            for tests in groups:
                if tuple(tests) not in sound and not _passes(copy / "repository", tests):
                    raise BaselineError(f"{' '.join(tests)}: fail without a mutant")
                sound.add(tuple(tests))
            if not _is_killed(copy, mutant, groups):
                yield mutant


def _copy(folder: Path) -> None:
    """The sources as a copy, all else as it is; the shared data is not there."""
    target = folder / "repository"
    target.mkdir()
    for path in REPOSITORY.iterdir():
        if path.name == "kai_py":
            subprocess.run(["cp", "-r", str(path), str(target / path.name)], check=True)
        elif not path.name.startswith("."):
            (target / path.name).symlink_to(path)


def _is_killed(folder: Path, mutant: Mutant, groups: Iterable[list[str]]) -> bool:
    repository = folder / "repository"
    module = repository / mutant.module
    original = module.read_text(encoding="utf-8")
    module.write_text(mutant.source, encoding="utf-8")
    try:
        return any(not _passes(repository, tests) for tests in groups)
    finally:
        module.write_text(original, encoding="utf-8")


def _tests_of(mutant: Mutant) -> Iterator[list[str]]:
    """Folders of tests, the nearest first."""
    parts = Path(mutant.module).parts[1:]
    folders = ["/".join(("tests", *parts[:depth])) for depth in range(len(parts) - 1, 0, -1)]
    near = (f"{folders[0]}/test_{parts[-1]}", *folders)
    first = [each for each in near if (REPOSITORY / each).exists()][:1]
    yield [*first, "tests/mutation"]
    yield [each for each in BESIDE[parts[0]] if each not in first]


def _passes(repository: Path, tests: list[str]) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", MARKERS]
    environment = {
        **os.environ,
        "PYTHONPATH": str(repository),
        "KAI_PY_DATA": str(repository / "none"),
    }
    try:
        done = subprocess.run(
            [*command, "-p", "no:randomly", *tests],
            cwd=repository,
            env=environment,
            capture_output=True,
            check=False,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
