"""The code speaks the language of the glossary: no banned words, one thing for one class name."""

import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.support.repository import ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
MODULES = sorted((ROOT / "kai_py").rglob("*.py"))
CODE = [
    *MODULES,
    *(
        path
        for folder in ("benchmarks", "examples", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ),
]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "crds").glob("*")),
    *sorted((ROOT / "examples").rglob("*.yaml")),
    *sorted((ROOT / "tests").rglob("*.yaml")),
]

MOST_WORDS = 25
PUBLIC_CLASS = re.compile(r"^class ([^\W_]\w*)[(:\[]", re.MULTILINE)


def by_folder(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Files by the first two names of their path."""
    folders = defaultdict[str, list[Path]](list)
    for path in paths:
        folders["/".join(path.relative_to(ROOT).parts[:-1][:2]) or "."].append(path)
    return folders


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of the glossary."""
    section = GLOSSARY.read_text().split(heading, 1)[1].split("\n#", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


BANNED = frozenset(
    word for cells in rows("## Words that are not used") for word in cells[0].split(", ")
)


def words(text: str) -> set[str]:
    """Lower-case words of prose, and the parts of identifiers in it."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", text)
    return {part.lower() for part in parts}


def banned_in(text: str) -> set[str]:
    return words(text) & BANNED


def test_it_is_short_and_tells_what_others_call_it() -> None:
    found = rows("# Glossary")
    assert 0 < len(found) <= MOST_WORDS
    assert all(len(cells) == 3 and all(cells) for cells in found)


def tokens(path: Path) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(path.read_text()).readline)


def misused(path: Path) -> set[str]:
    """The banned words of one file of code, and where they are."""
    # What no token has, the whole text has not: a token ends no word that the text goes on with.
    suspect = banned_in(path.read_text())
    found = {
        f"{path}:{token.start[0]}: {word}"
        for token in (tokens(path) if suspect else ())
        for word in banned_in(token.string)
    }
    return found | {f"{path}: file name: {word}" for word in banned_in(path.stem)}


@pytest.mark.parametrize("folder", sorted(by_folder(CODE)))
def test_identifiers_messages_and_comments_use_its_words(folder: str) -> None:
    wrong = set[str]().union(*map(misused, by_folder(CODE)[folder]))
    assert not wrong


@pytest.mark.parametrize("folder", sorted(by_folder(PAGES)))
def test_pages_and_manifests_use_its_words(folder: str) -> None:
    wrong = set[str]()
    for path in by_folder(PAGES)[folder]:
        text = path.read_text()
        if path == GLOSSARY:
            text = text.split("## Words that are not used")[0]
        wrong |= {
            f"{path}:{number}: {word}"
            for number, line in enumerate(text.splitlines(), start=1)
            for word in banned_in(line)
        }
    assert not wrong


def test_a_public_class_name_stands_for_one_thing() -> None:
    places = defaultdict[str, list[str]](list)
    for path in MODULES:
        for name in PUBLIC_CLASS.findall(path.read_text()):
            places[name].append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
