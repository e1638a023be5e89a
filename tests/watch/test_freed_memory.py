"""Freed memory is kept: making the same arrays again takes no new pages from the kernel."""

import subprocess
import sys

import pytest

ARRAYS_AGAIN = """
import resource
import numpy as np
from kai_py.watch.mirror import freeze_memory

freeze_memory()
for number in range(20):
    if number == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.ones(60_000) for _ in range(16)]
    del arrays
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
def test_arrays_over_all_nodes_take_no_new_pages():
    """Each round makes 7.7 MB, 1,900 pages."""
    answer = subprocess.run(
        [sys.executable, "-c", ARRAYS_AGAIN], capture_output=True, text=True, check=True
    )
    assert int(answer.stdout) < 1_900, answer.stdout
