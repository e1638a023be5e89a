"""Build the control plane if needed and print the directory its programs are in.

With ``--serve`` start one, print the path of its kubeconfig, and stop it when interrupted.
"""

import argparse
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.cluster.controlplane.binaries import binaries, discard_compiled
from tests.cluster.controlplane.server import control_plane


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.controlplane", description=__doc__
    )
    parser.add_argument("--serve", action="store_true", help="start it, until interrupted")
    if parser.parse_args().serve:
        _serve()
    else:
        print(binaries())
        discard_compiled()


def _serve() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="kai-py-control-plane-") as directory,
        control_plane(Path(directory)) as plane,
    ):
        print(plane.kubeconfig, flush=True)
        signal.pause()


main()
