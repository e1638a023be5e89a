"""Every stage that can stop a gang is told, and none that cannot."""

import re

from kai_py.plan.decisions import Stage
from tests.docs.pages import DOCS

TEXT = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")


def test_every_stage_has_a_line():
    told = re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)
    assert sorted(told) == sorted(stage.value for stage in Stage)


def test_lines_say_what_helps():
    for line in re.findall(r"^\| .*\|$", TEXT, re.MULTILINE):
        assert all(cell.strip() for cell in line.strip("|").split(" | ")), line
