"""The installed program, for tests that run it as a process of its own."""

import sys
from pathlib import Path

KAI_PY = [str(Path(sys.executable).with_name("kai-py"))]
