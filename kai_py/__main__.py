"""The program: ``kai-py``, and the same as ``python -m kai_py``."""

import importlib
import signal


def main() -> None:
    """Run the command line; an interrupt before it can answer ends the process at once."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # imports would end with a traceback
    importlib.import_module("kai_py.cli.main").main()


if __name__ == "__main__":
    main()
