"""The table of pending situations in docs/troubleshooting.md: kube-scheduler beside kai_py.

``python -m tests.docs.pending_table`` writes it from the corpus and from what kube-scheduler was
heard to say.
"""

import re
from pathlib import Path

import msgspec

from kai_py.plan.plan import Stage
from tests.support.pending.names import NAMES
from tests.support.pending.requirements import REQUIREMENTS
from tests.support.pending.sizes import SIZES
from tests.support.situations import Situation

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/troubleshooting.md"
RECORDED = ROOT / "tests/corpus/pending/kube_scheduler.json"
NOISE = re.compile(r" (no new claims to deallocate|still not schedulable|not found$)")
"""What kube-scheduler adds about preemption."""
BEGIN, END = "<!-- pending situations: begin -->\n", "<!-- pending situations: end -->\n"
HEAD = "| situation | kube-scheduler | kai-py | first suggestion |\n| --- | --- | --- | --- |\n"

UNSTEADY = frozenset({"attribute-misspelt", "domain-misspelt"})
"""Of which kube-scheduler says the CEL error, or nothing for a long time."""
COMPARED = tuple(
    each
    for each in (*NAMES, *SIZES, *REQUIREMENTS)
    if isinstance(each.stage, Stage) and not each.before and each.name not in UNSTEADY
)
"""Those that need nothing but objects: no earlier workload, and pods that exist."""


def recorded() -> dict[str, str]:
    """By situation, what kube-scheduler says."""
    return msgspec.json.decode(RECORDED.read_bytes(), type=dict[str, str])


def table() -> str:
    theirs = recorded()
    rows = (
        "".join(f"| {_cell(text)} " for text in (each.name, theirs[each.name], *_ours(each)))
        + "|\n"
        for each in COMPARED
        if each.name in theirs
    )
    return HEAD + "".join(rows)


def page() -> str:
    """The page with the table as it should be."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


def _ours(situation: Situation) -> tuple[str, str]:
    return situation.says, situation.suggests


def _cell(text: str) -> str:
    return NOISE.split(text)[0].replace("|", "\\|").strip()


if __name__ == "__main__":
    PAGE.write_text(page())
