"""Budgets of searches for devices, in counted units, never time, so results are the same anywhere.

Two things cost: steps of the search (devices tried) and the evaluation of selectors, in the cost
units of the API server, where a million are about a second. Each has an allowance for one question
and one for all questions of a cycle:

    steps       a question is a gang; what one gang leaves the next may use, up to the cycle's
    selectors   a question is a set of claims, however many pods have claims like it

A question that uses up its own allowance has its answer: it is too expensive. For selectors this is
remembered; for steps each node keeps the results so far, so that a search continues where it ended.
If the allowance of the cycle is used up, nothing is proven (``cut_short``) and nothing is kept.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct, field

from kai_py.dra.identity import AllocationError

UNLIMITED = 1 << 62
STEPS_PER_GANG, STEPS_PER_CYCLE = 20_000, 2_000_000
SELECTOR_COST_PER_CLAIMS, SELECTOR_COST_PER_CYCLE = 2_000_000, 8_000_000
"""What a scheduler allows unless configured otherwise: seconds, and some more for a cycle."""
REMEMBERED = 4096
"""Sets of claims that are known to be too expensive, the most recently used ones."""

READING_COST = 10
"""Cost units per character of a selector that is parsed and checked for the first time."""

MAX_TEXTS = 16_384
"""Texts that are known to have been read, as many as compiled ones are kept."""


class SelectorsTooExpensiveError(AllocationError):
    """Selectors cost too much to evaluate; ``proven``: whatever else the cycle has to do."""

    def __init__(self, text: str, *, proven: bool) -> None:
        super().__init__(text)
        self.proven = proven


_APART = "/"
"""In place of the key of a gang, which is never this."""


class StepAllowance(Struct, eq=False):
    """Steps of device searches."""

    per_gang: int = UNLIMITED
    per_cycle: int = UNLIMITED
    cut_short: bool = False
    """Whether a search of this gang found nothing for want of steps it may have next time."""
    _gang: str = ""
    _by_gang: dict[str, int] = field(default_factory=dict)
    _in_cycle: int = 0

    def start_cycle(self) -> None:
        """All allowances are whole again."""
        self._by_gang.clear()
        self._in_cycle, self._gang, self.cut_short = 0, "", False

    def begin(self, gang: str) -> None:
        """The next searches are for a gang, by its key."""
        self._gang, self.cut_short = gang, False

    @property
    def left(self) -> int:
        """Steps that the next search may make."""
        of_gang = self.per_gang - self._by_gang.get(self._gang, 0)
        return max(0, min(of_gang, self.per_cycle - self._in_cycle))

    @contextmanager
    def apart(self, steps: int) -> Iterator[None]:
        """Searches inside may make ``steps``, none of which the gang needs.

        They explain a result; that they end early does not cut the gang's own search short.
        """
        gang, cut_short = self._gang, self.cut_short
        self._gang, self._by_gang[_APART] = _APART, self.per_gang - steps
        try:
            yield
        finally:
            self._gang, self.cut_short = gang, cut_short

    def spend(self, steps: int) -> None:
        """Count ``steps`` of a search."""
        self._by_gang[self._gang] = self._by_gang.get(self._gang, 0) + steps
        self._in_cycle += steps


class SelectorAllowance(Struct, eq=False):
    """Cost of evaluating selectors."""

    per_claims: int = UNLIMITED
    per_cycle: int = UNLIMITED
    cut_short: bool = False
    """Whether selectors could not be evaluated for want of what the cycle may spend."""
    _claims: bytes = b""
    _by_claims: dict[bytes, int] = field(default_factory=dict)
    _in_cycle: int = 0
    _too_expensive: "OrderedDict[bytes, None]" = field(default_factory=OrderedDict)
    _read: set[str] = field(default_factory=set)

    @property
    def size(self) -> int:
        """How much is remembered."""
        return len(self._by_claims) + len(self._too_expensive) + len(self._read)

    def start_cycle(self) -> None:
        """All allowances are whole again; what is too expensive stays so."""
        self._by_claims.clear()
        self._in_cycle, self._claims, self.cut_short = 0, b"", False

    def begin(self, claims: bytes) -> None:
        """The next evaluations are for a set of claims, by its encoded specs.

        :raises SelectorsTooExpensiveError: it is known to be too expensive.
        """
        self._claims, self.cut_short = claims, False
        if claims in self._too_expensive:
            self._too_expensive.move_to_end(claims)
            raise self._error(proven=True)

    def read(self, text: str) -> None:
        """A selector is about to be parsed, unless it was before; raises as ``require``."""
        if text not in self._read:
            self.require()
            if len(self._read) >= MAX_TEXTS:
                self._read.clear()
            self._read.add(text)
            self.spend(READING_COST * len(text))

    def has_read(self, text: str) -> bool:
        """Whether a selector has been parsed within the allowances: to parse it again is cheap."""
        return text in self._read

    def require(self) -> None:
        """Go on with the next evaluation.

        :raises SelectorsTooExpensiveError: the allowance is used up.
        """
        if self._by_claims.get(self._claims, 0) >= self.per_claims:
            if self._claims:
                self._too_expensive[self._claims] = None
                if len(self._too_expensive) > REMEMBERED:
                    self._too_expensive.popitem(last=False)
            raise self._error(proven=True)
        if self._in_cycle >= self.per_cycle:
            self.cut_short = True
            raise self._error(proven=False)

    def spend(self, cost: int) -> None:
        """An evaluation cost so much."""
        self._by_claims[self._claims] = self._by_claims.get(self._claims, 0) + cost
        self._in_cycle += cost

    def _error(self, *, proven: bool) -> SelectorsTooExpensiveError:
        if proven:
            text = (
                f"its selectors cost more than {self.per_claims:,} to evaluate on the devices of "
                "the cluster (budgets.selectorCostPerClaims); write simpler ones"
            )
            return SelectorsTooExpensiveError(text, proven=True)
        text = (
            "its selectors were not evaluated, as those of other claims used up the budget of the "
            "cycle; they are evaluated in a later cycle"
        )
        return SelectorsTooExpensiveError(text, proven=False)


class Spending(Struct, eq=False):
    """All allowances of searches for devices; ``poll``: called while one goes on, may end it."""

    steps: StepAllowance = field(default_factory=StepAllowance)
    selectors: SelectorAllowance = field(default_factory=SelectorAllowance)
    poll: Callable[[], None] = lambda: None

    @classmethod
    def limited(cls) -> "Spending":
        """The allowances of a scheduler that is not configured otherwise."""
        return cls(
            StepAllowance(STEPS_PER_GANG, STEPS_PER_CYCLE),
            SelectorAllowance(SELECTOR_COST_PER_CLAIMS, SELECTOR_COST_PER_CYCLE),
        )

    def start_cycle(self) -> None:
        """A cycle begins."""
        self.steps.start_cycle()
        self.selectors.start_cycle()

    def begin(self, gang: str) -> None:
        """The turn of a gang begins, by its key."""
        self.steps.begin(gang)
        self.selectors.cut_short = False

    @property
    def cut_short(self) -> bool:
        """Whether anything was left undecided in the turn, for want of what the cycle may spend."""
        return self.steps.cut_short or self.selectors.cut_short
