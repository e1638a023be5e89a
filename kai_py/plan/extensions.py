"""Actions and scores of installed packages: a failure affects only the one that fails.

An exception in an action undoes what the action decided; a score that fails, or returns something
that is not a score, counts as equal for all nodes. Either is left out until its backoff ends, like
a gang that fails, and the cycle goes on. An action that neither returns nor calls the placer cannot
be ended: it is code of the installation, not of a tenant.
"""

from collections.abc import Set
from dataclasses import dataclass, field
from traceback import format_exception

from kai_py.api.choices import BuiltInScore
from kai_py.plan.observations import SetAside
from kai_py.policy.score.registry import WeightedScore

MAX_ERROR_LENGTH = 200
"""Characters of an error that are reported."""


def action_key(name: str) -> str:
    """The key of an added action among all that may fail; no gang has such a key."""
    return f"action {name}"


def score_key(name: str) -> str:
    """The key of a score."""
    return f"score {name}"


def step_key(name: str) -> str:
    """The key of a step of the cycle; one that failed is tried again in the next cycle."""
    return f"step {name}"


def queue_key(name: str) -> str:
    """The key of a queue that is left out of the cycle."""
    return f"queue {name}"


def extension_keys(scores: tuple[WeightedScore, ...], actions: tuple[str, ...]) -> tuple[str, ...]:
    """The keys of all that is configured."""
    installed = [each.name for each in scores if each.name not in tuple(BuiltInScore)]
    return (*map(score_key, installed), *map(action_key, actions))


def failure_text(error: Exception) -> str:
    """An error as one short line."""
    text = " ".join(str(error).split())[:MAX_ERROR_LENGTH]
    return f"{type(error).__name__}{text and ': '}{text}"


@dataclass
class Extensions:
    """The extensions of a cycle: ``aside``, keys left out; ``failed``, by key, in this cycle."""

    aside: Set[str] = frozenset()
    failed: dict[str, SetAside] = field(default_factory=dict)

    def may_run(self, key: str) -> bool:
        """Whether it takes part in the cycle."""
        return key not in self.aside and key not in self.failed

    def able(self, scores: tuple[WeightedScore, ...]) -> tuple[WeightedScore, ...]:
        """The scores that take part."""
        return tuple(each for each in scores if self.may_run(score_key(each.name)))

    def fail(self, key: str, error: Exception) -> None:
        """Leave it out from now on."""
        message = f"{key} failed ({failure_text(error)})"
        self.set_aside(key, message, "".join(format_exception(error)))

    def fail_score(self, name: str, error: Exception) -> None:
        """Leave a score out from now on."""
        self.fail(score_key(name), error)

    def set_aside(self, key: str, message: str, error: str = "") -> None:
        """Leave it out from now on, and say why; ``error``: a traceback."""
        self.failed.setdefault(key, SetAside(key, message, error))
