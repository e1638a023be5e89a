"""``python -m kai_py``: the same as ``kai-py``."""

from kai_py.cli.main import main

main()
