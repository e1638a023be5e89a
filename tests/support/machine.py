"""What the suite wants of a machine beyond Python; tests that miss some of it are skipped.

    python -m tests.support.machine    builds helm, names what is missing, then fails

``.ci/run`` installs the Debian packages where it may.
"""

import shutil
import sys
from collections.abc import Iterator

from tests.deploy import helm
from tests.observe.browser import NAMES, find_browser
from tests.support.repository import DATA

MONITORING = ("prometheus", "promtool")


def missing() -> Iterator[str]:
    """One sentence for each thing that is not there."""
    if find_browser() is None:
        yield f"no browser ({', '.join(NAMES)}): apt-get install chromium"
    for program in MONITORING:
        if shutil.which(program) is None:
            yield f"no {program}: apt-get install prometheus"
    if reason := helm.missing():
        yield reason


def main() -> None:
    """Say what is missing."""
    found = list(missing())
    for sentence in found:
        print(f"tests are skipped: {sentence}", file=sys.stderr)
    if not DATA.is_dir():
        print(f"tests of shared data are skipped: not found at {DATA}", file=sys.stderr)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
