"""The static cost estimate is for whoever admits expressions; the scheduler runs without it."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_neither_scheduler_nor_planner_loads_the_estimate():
    program = "import sys, kai_py.scheduler; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert {"kai_py.planner", "kai_py.cel.expression"} <= set(loaded)
    assert [name for name in loaded if name.startswith("kai_py.cel.estimate")] == []


@pytest.mark.slow
def test_parsing_reads_one_file_of_cel_python_and_imports_none_of_it():
    program = "import sys; from kai_py.cel.parse import parse; parse('1 == 1'); print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "lark" in loaded
    assert "celpy" not in loaded
