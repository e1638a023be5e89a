"""``kubectl kai``: plugin and completion for kubectl.

kubectl runs ``kubectl-kai`` for ``kubectl kai``, and ``kubectl_complete-kai`` with the words after
``kai`` (the last one unfinished) to complete them: one suggestion per line, then a directive, of
which 4 asks it not to offer files. The suggestions are those of ``kai-py``'s completion for bash.

Source: kubectl's plugin page, cobra's completion protocol.
"""

import os
import shlex
import sys
from contextlib import suppress

from kai_py.cli.main import main

NO_FILES = ":4"


def run() -> None:
    """Run the command line as a kubectl plugin."""
    main(name="kubectl kai")


def complete() -> None:
    """Print the completions of the last word."""
    words = ["kai-py", *(sys.argv[1:] or [""])]
    os.environ |= {
        "_KAI_PY_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    # Completion ends the process, but the directive has to follow.
    with suppress(SystemExit):
        main([])
    print(NO_FILES)
