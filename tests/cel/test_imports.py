"""The static cost estimate is for whoever admits expressions; the scheduler runs without it."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["kai_py.planner", "kai_py.scheduler"])
def test_the_scheduler_does_not_load_the_estimate(module):
    program = f"import sys, {module}; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "kai_py.cel.evaluate" in loaded
    assert [name for name in loaded if name.startswith("kai_py.cel.estimate")] == []


def test_parsing_reads_one_file_of_cel_python_and_imports_none_of_it():
    program = "import sys; from kai_py.cel.parse import parse; parse('1 == 1'); print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "lark" in loaded
    assert "celpy" not in loaded
