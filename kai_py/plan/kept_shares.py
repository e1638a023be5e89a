"""Queues and fair shares from cycle to cycle, worked out again once what they follow from changes.

Comparing costs O(resources x queues), and nothing at all per level of the tree.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kai_py.policy.fair_share import FairShare, fair_share
from kai_py.policy.rules import Rules
from kai_py.snapshot.queue_specs import QueueProblem, QueueSpec
from kai_py.snapshot.queues import QueueTable, build_queues
from kai_py.snapshot.resources import Floats

Tree = tuple[QueueTable, tuple[QueueProblem, ...]]
"""All queues, and what is wrong with which of them."""

Written = tuple[tuple[QueueSpec, ...], tuple[str, ...]]
"""The queues as users wrote them, and the resources that are counted."""

Amounts = tuple[bytes, bytes, bytes | None, Rules]
"""What is there, asked for and was used, and the rules by which it is divided."""


@dataclass(slots=True)
class KeptShares:
    """What was worked out last. Nobody writes to it."""

    _written: Written = ((), ())
    _tree: Tree | None = None
    _amounts: Amounts | None = None
    _shares: FairShare | None = None

    def tree(self, specs: Sequence[QueueSpec], resources: Sequence[str]) -> Tree:
        """The queues of ``specs`` over ``resources``, as of ``build_queues``."""
        written = tuple(specs), tuple(resources)
        if self._tree is None or written != self._written:
            self._written, self._tree = written, build_queues(specs, resources)
            self._shares = None
        return self._tree

    def divided(
        self, queues: QueueTable, total: Floats, demand: Floats, rules: Rules, past: Floats | None
    ) -> FairShare:
        """The fair shares among the queues that ``tree`` gave last, as of ``fair_share``."""
        used = None if past is None else past.tobytes()
        amounts = total.tobytes(), demand.tobytes(), used, rules
        if self._shares is None or amounts != self._amounts:
            self._amounts = amounts
            self._shares = fair_share(queues, total, demand, rules, past)
        return self._shares
