"""The places tests read: the repository, and the data beside it that is no part of the project.

``KAI_PY_DATA`` names the directory of the data, ``../shared/data`` unless set. Tests that need what
is missing there skip with one sentence (``needs``), which ``CI=true`` lets pass.

The installed program, for tests that run it as a process of its own.
"""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CRDS = ROOT / "crds"
EXAMPLES = ROOT / "examples"
CHART = ROOT / "charts" / "kai-py"
DATA = Path(os.environ.get("KAI_PY_DATA") or ROOT.parent / "shared" / "data")
OPENB = DATA / "openb"
ARTICLES = DATA.parent / "seed-manifests"
NO_DATA = "no shared data at "
NO_HISTORY = "the history of this clone lacks the previous version"


def absent(*needed: Path) -> str | None:
    """The sentence a test skips with when one of these is missing, None when all are there."""
    missing = [path for path in needed if not path.exists()]
    return f"{NO_DATA}{missing[0]}; point KAI_PY_DATA at it" if missing else None


def needs(*needed: Path) -> pytest.MarkDecorator:
    """Skip a test where shared data is missing."""
    reason = absent(*needed)
    return pytest.mark.skipif(reason is not None, reason=reason or "")


KAI_PY = [str(Path(sys.executable).with_name("kai-py"))]
