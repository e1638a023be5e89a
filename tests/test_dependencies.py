"""What the package declares to need is what it imports; its files and functions stay short."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.support.repository import ROOT

MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 60

BY_NAME = {"kubernetes", "celpy"}
"""Used by name: kai_py/watch/credentials.py imports the one, kai_py/cel/parse.py reads a file."""


def imported(source: Path) -> set[str]:
    """The top-level modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                found |= {alias.name.partition(".")[0] for alias in names}
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module.partition(".")[0])
    return found


@pytest.mark.slow
def test_every_import_is_declared_and_every_declaration_imported():
    modules = {name for source in (ROOT / "kai_py").rglob("*.py") for name in imported(source)}
    foreign = (modules | BY_NAME) - sys.stdlib_module_names - {"kai_py"}
    distributions = packages_distributions()
    needed = {distributions[module][0].lower().replace("_", "-") for module in foreign}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {re.match(r"[\w-]+", each)[0].lower() for each in project["dependencies"]}
    assert needed == declared


@pytest.mark.slow
def test_files_and_functions_fit_the_reader() -> None:
    """Files of at most 400 lines, functions that fit a screen."""
    too_long = []
    for path in sorted((ROOT / "kai_py").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > MAX_FILE_LINES:
            too_long.append(f"{path}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                lines = node.end_lineno - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    too_long.append(f"{path}:{node.lineno}: {node.name} has {lines} lines")
    assert too_long == []
