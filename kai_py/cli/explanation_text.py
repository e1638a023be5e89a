"""Explanations on the terminal: the reason, what would help, what it costs, past decisions.

For a claim also how many devices each check rejects.
"""

import contextlib
import io
import math
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import typer

from kai_py.api.texts import count_of, is_or_are
from kai_py.cli.output import print_table, say
from kai_py.cli.sentences import say_sentence
from kai_py.observe.claim_funnel import ClaimFunnel, RequestFunnel
from kai_py.observe.decision_log import Decision, DecisionKind
from kai_py.observe.explanation import DELETED, Explanation, QueueLevel
from kai_py.observe.gang_rows import NOT_PENDING
from kai_py.observe.share_steps import format_amount
from kai_py.observe.suggestion import Suggestion, Verb
from kai_py.simulate.explained_cluster import SearchReport

MAX_NODES_SHOWN = 4
UNFINISHED = "\nThe search for such changes was not finished in time; there may be more."


def described(explanation: Explanation) -> str:
    """What the command prints of a gang, as text."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        _print(explanation)
    return text.getvalue()


def _print(explanation: Explanation) -> None:
    say_sentence(f"{explanation.gang} is {_state_text(explanation)}{_pods_text(explanation)}.")
    if explanation.message:
        say_sentence(f"  {explanation.message}")
    for each in explanation.releases:
        when = f"by {_local_time(each.at)}" if each.at else "now: they are terminating"
        basis = ", judging by earlier pods of their kind" if each.is_observed else ""
        say_sentence(
            f"  Pods with {count_of(round(each.gpus, 2), 'GPU')} are expected to end {when}{basis}."
        )
    if explanation.nodes:
        since = f", since {_local_time(explanation.started)}" if explanation.started else ""
        place = "is on" if explanation.starting else "runs on"
        say_sentence(f"  It {place} {', '.join(explanation.nodes)}{since}.")
    if explanation.if_evicted:
        say_sentence(f"  If all of it is evicted, {explanation.if_evicted}.")
    if explanation.queue_position and explanation.queue:
        gained = (
            f", plus {explanation.ageing_points} by ageing" if explanation.ageing_points else ""
        )
        say_sentence(
            f"  Position {explanation.queue_position} of {explanation.queue_length} pending in "
            f"queue {explanation.queue} (priority {explanation.priority}{gained})."
        )
    if explanation.queues:
        typer.echo()
        print_table(
            ("QUEUE", "DESERVED", "MAX", "FAIR SHARE", "ALLOCATED", "REQUESTED", "OF"),
            map(_level, (*explanation.queues, *explanation.limited_resources)),
        )
    if explanation.claim is not None:
        _print_claim(explanation.claim)
    if explanation.history:
        typer.echo("\nDecisions:")
        for decision in explanation.history:
            say_sentence(f"  {_decision_line(explanation, decision)}")


@dataclass
class ExplanationPrinter:
    """Prints the reasons before the search for suggestions, and each of these as it is found."""

    _last_gang: str = ""

    @property
    def report(self) -> SearchReport:
        """What a search calls."""
        return SearchReport(self._print_reasons, self._print_found)

    def _print_reasons(self, explanations: Iterable[Explanation]) -> None:
        for explanation in explanations:
            _print(explanation)
        sys.stdout.flush()

    def _print_found(self, gang: str, suggestion: Suggestion) -> None:
        if gang != self._last_gang:
            self._last_gang = gang
            typer.echo()
            say(f"In simulation, any of these changes lets {gang} start:")
        _print_suggestion(suggestion)
        sys.stdout.flush()


def _print_suggestion(suggestion: Suggestion) -> None:
    say_sentence(f"  - {suggestion.text}{cost_text(suggestion)}")
    for command in _commands(suggestion):
        say(f"      {command}")


def _pods_text(explanation: Explanation) -> str:
    """How many pods run, or how many are bound and how many of these have not started."""
    if not explanation.pods:
        return ""
    runs, bound = ("runs", "is bound") if explanation.pods == 1 else ("run", "are bound")
    if explanation.starting:
        runs = f"{bound} ({explanation.starting} not started yet)"
    if explanation.terminating:
        runs += f", {explanation.terminating} {is_or_are(explanation.terminating)} ending"
    pods = count_of(explanation.pods, "pod")
    return f": {explanation.bound} of {pods} {runs}, minMember is {explanation.min_members}"


def _state_text(explanation: Explanation) -> str:
    """A stage as "pending (STAGE)", other states in lower case."""
    state = explanation.state
    if state in (*NOT_PENDING, DELETED):
        return state.lower()
    return f"pending ({state}), infeasible" if explanation.is_infeasible else f"pending ({state})"


def _level(level: QueueLevel) -> tuple[str, ...]:
    return (
        level.queue,
        _amount(level.deserved),
        _amount(level.maximum),
        _amount(level.fair_share),
        _amount(level.allocated),
        _amount(level.requested),
        level.unit,
    )


def _amount(amount: float | None) -> str:
    return "-" if amount is None or math.isinf(amount) else format_amount(amount)


def cost_text(suggestion: Suggestion) -> str:
    """Gangs that a suggestion ends, and those that only lose pods, with the effect on each."""
    effects = dict(suggestion.effects)

    def named(gang: str) -> str:
        return f"{gang} ({effects[gang]})" if gang in effects else gang

    shrunk = [each for each in suggestion.evicts if each not in suggestion.stops]
    costs = (("would be evicted", suggestion.stops), ("would lose pods", shrunk))
    return "".join(f"; {', '.join(map(named, gangs))} {cost}" for cost, gangs in costs if gangs)


def _decision_line(explanation: Explanation, decision: Decision) -> str:
    """A decision about the gang, or about another one in its favour, in one line."""
    pods = f"{count_of(len(decision.pods), 'pod')} on {', '.join(decision.nodes[:MAX_NODES_SHOWN])}"
    match decision.kind:
        case DecisionKind.PLACED if not decision.action:
            text = f"placed, {pods}; {decision.message}"
        case DecisionKind.PLACED:
            text = f"placed by {decision.action}, {pods}: {decision.message}"
        case DecisionKind.EVICTED if not decision.pods:
            text = f"evicted: {decision.message}"
        case DecisionKind.EVICTED if decision.gang == explanation.gang:
            own = decision.preemptor == decision.gang
            cause = "" if own else f" for {decision.preemptor} ({decision.preemptor_queue})"
            text = f"evicted by {decision.action}{cause}, {pods}: {decision.message}"
        case DecisionKind.EVICTED:
            text = f"{decision.gang} was evicted for it, {pods}: {decision.message}"
        case DecisionKind.NOMINATED:
            text = f"nominated, {pods}"
        case DecisionKind.PENDING:
            text = f"pending ({decision.stage}): {decision.message}"
        case DecisionKind.DELETED:
            text = "was deleted while pending"
    return f"{_local_time(decision.time)}  {text}"


def _local_time(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def _commands(suggestion: Suggestion) -> Iterator[str]:
    """Commands for a suggestion, as far as its steps fit in a line."""
    for step in suggestion.steps:
        if step.command:
            yield step.command
        elif step.verb is not Verb.ADD_NODES:
            yield f"{step.verb} {step.kind} {step.name} (-o json has its manifest)"


def _print_claim(claim: ClaimFunnel) -> None:
    """Print the funnel of a claim."""
    if claim.allocated:
        say("")
        say(f"Claim {claim.claim} is allocated {', '.join(claim.allocated)}.")
        return
    say("")
    if claim.message and not claim.requests:
        say_sentence(f"Claim {claim.claim}: {claim.message}.")
        return
    nodes = count_of(claim.nodes, "node")
    say(f"Devices for claim {claim.claim}: {claim.devices} on {nodes}.")
    if claim.message:
        say(f"  {claim.message}")
    for pool in claim.unusable_pools:
        say(f"  pool {pool} is not used")
    for request in claim.requests:
        count = request.count or "all"
        say("")
        say(f"  request {request.request}: {count} of class {request.device_class}")
        print_table(("DEVICES", "", "REASON"), _request_rows(claim, request))
        if request.nearest is not None:
            has = " and ".join(
                f"{name} is {value}" for name, value in request.nearest.actual.items()
            )
            say(f"  nearest is {request.nearest.device}{f', where {has}' if has else ''}")


def _request_rows(claim: ClaimFunnel, request: RequestFunnel) -> Iterator[tuple[str, str, str]]:
    yield str(claim.devices), "exist", ""
    for each in request.rejected:
        yield f"-{each.devices}", each.check, each.reason
    yield str(request.free), "free", f"at most {request.max_per_node} on a node"
