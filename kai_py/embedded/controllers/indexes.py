"""Completion indexes of Indexed Jobs: on pods, as text such as `1,3-5`, and the next free ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kai_py.embedded.documents import Json

INDEX_KEY = "batch.kubernetes.io/job-completion-index"


def index_of(pod: Json) -> int | None:
    """Return a pod's completion index."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX_KEY)
    return int(text) if text is not None else None


def missing_indexes(completions: int, taken: Collection[int | None], count: int) -> Sequence[int]:
    """Return the lowest `count` indexes below `completions` that are not taken."""
    free = [index for index in range(completions) if index not in taken]
    return free[:count]


def parse_indexes(text: str) -> Sequence[int]:
    """Parse `1,3-5` into [1, 3, 4, 5]."""
    indexes: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        indexes.extend(range(int(first), int(last or first) + 1))
    return indexes


def format_indexes(indexes: Collection[int]) -> str:
    """Format indexes as `1,3-5`."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1] = [runs[-1][0], index]
        else:
            runs.append([index])
    return ",".join("-".join(str(end) for end in run) for run in runs)
