"""What is in the documentation: its pages, their headings, links, commands and manifests."""

import re
import shlex
from pathlib import Path
from textwrap import dedent

from tests.support.repository import DOCS, EXAMPLES, ROOT

PAGES = [ROOT / "README.md", EXAMPLES / "README.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:^(?: {4}.*)?\n)+", re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def label(page: Path) -> str:
    """The page as tests name it."""
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """The text without blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Targets of links and pictures."""
    return LINK.findall(re.sub(r"`[^`\n]*`", "", prose(page)))


def anchors(page: Path) -> set[str]:
    """What a link may name after "#", as Sphinx and Git servers make it of headings."""
    titles = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", each) for each in HEADING.findall(prose(page))
    ]
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in titles}


def manifests(page: Path) -> list[str]:
    """The fenced blocks of YAML, and indented ones that are manifests."""
    text = page.read_text(encoding="utf-8")
    fenced = [block for kind, block in FENCE.findall(text) if kind == "yaml"]
    indented = map(dedent, INDENTED.findall(FENCE.sub("", text)))
    return [*fenced, *(block for block in indented if block.lstrip().startswith("apiVersion:"))]


def commands(page: Path) -> list[list[str]]:
    """The words of every `kai-py …` line in a block of code."""
    return [command for line in shell_lines(page) for command in _commands(line)]


def shell_lines(page: Path) -> list[str]:
    """The lines of blocks of code, as a shell takes them."""
    text = page.read_text(encoding="utf-8")
    fenced = [block for kind, block in FENCE.findall(text) if kind in ("", "sh", "shell")]
    blocks = [*fenced, *INDENTED.findall(FENCE.sub("", text))]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines]


def _commands(line: str) -> list[list[str]]:
    if not re.match(r"(?:kubectl kai|kai-py) ", line) and "| kai-py " not in line:
        return []
    words = shlex.split(line, comments=True)
    parts: list[list[str]] = [[]]
    for word in words:
        if word in ("|", ">", "&&", ";"):
            parts.append([])
        else:
            parts[-1].append(word)
    return [part[1:] for part in parts if part and part[0] == "kai-py"]
