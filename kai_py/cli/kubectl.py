"""``kubectl kai``: how does kubectl find this program and complete its words?

kubectl runs ``kubectl-kai`` for ``kubectl kai``, and ``kubectl_complete-kai`` with the words after
``kai`` (the last one unfinished) to complete them: one suggestion per line, then a directive, of
which 4 asks it not to offer files. What completes is the completion of ``kai-py`` for bash.
Source: kubectl's plugin page, cobra's completion protocol.
"""

import os
import shlex
import sys
from contextlib import suppress

from kai_py.cli.main import main

NO_FILES = ":4"


def run() -> None:
    """Run the command line as kubectl's plugin."""
    main(name="kubectl kai")


def complete() -> None:
    """Print what the last word may become."""
    words = ["kai-py", *(sys.argv[1:] or [""])]
    os.environ |= {
        "_KAI_PY_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    with suppress(SystemExit):
        main([])
    print(NO_FILES)
