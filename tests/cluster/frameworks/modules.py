"""Where are the sources of a framework, with its CRDs and samples?

In the Go module cache of the project, downloaded once through the Go proxy at the versions that
`go.mod` beside this file fixes, or one of the folders here.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.cluster.controlplane.binaries import user_cache
from tests.cluster.controlplane.toolchain import find_go, go_environment
from tests.support import yaml_text

MODULE = Path(__file__).parent


class DownloadError(RuntimeError):
    """A module could not be downloaded; the text has what Go printed."""


def cache_directory() -> Path:
    """Where modules and programs of frameworks are kept."""
    return user_cache() / "kai-py" / "frameworks"


def environment() -> dict[str, str]:
    """The environment of Go: like the control plane's, with modules in the project's cache."""
    cached = cache_directory()
    return go_environment(cached) | {
        "GOMODCACHE": str(cached / "modules"),
        "GOFLAGS": "-mod=readonly -modcacherw",
    }


@cache
def module_directory(module: str) -> Path:
    """The sources of a module, downloaded if needed."""
    cached = cache_directory()
    cached.mkdir(parents=True, exist_ok=True)
    answer = subprocess.run(
        [find_go(MODULE, cached), "mod", "download", "-json", f"{module}@{version(module)}"],
        cwd=cached,
        env=environment() | {"GOFLAGS": "-modcacherw"},
        check=False,
        capture_output=True,
        text=True,
    )
    if answer.returncode != 0:
        raise DownloadError(f"go mod download {module}: {answer.stdout or answer.stderr}")
    return Path(json.loads(answer.stdout)["Dir"])


def version(module: str) -> str:
    """The version of a module."""
    pattern = re.compile(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", re.MULTILINE)
    for path in (MODULE / "go.mod", *sorted(MODULE.glob("*/go.mod"))):
        if found := pattern.search(path.read_text()):
            return found[1]
    raise DownloadError(f"{module} is in no go.mod of {MODULE}")


def documents(module: str, *patterns: str) -> Iterator[dict[str, Any]]:
    """The YAML documents in the files of a module that match, in the order of their paths."""
    root = module_directory(module)
    for pattern in patterns:
        paths = sorted(root.glob(pattern))
        assert paths, f"{module} {version(module)} has no {pattern}"
        for path in paths:
            yield from (each for each in yaml_text.read_all(path.read_text()) if each)


def definitions(module: str, pattern: str) -> list[dict[str, Any]]:
    """The CustomResourceDefinitions in those files."""
    found = documents(module, pattern)
    return [each for each in found if each.get("kind") == "CustomResourceDefinition"]
