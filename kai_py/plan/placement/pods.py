"""Placing pods of one shape: all in one fill, or one after the other where each changes the next.

Where room alone decides, the kept fits of the shape do (``running_fit``, ``scored_fit``); else what
every node has room for is asked anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kai_py.api.choices import FillStrategy
from kai_py.plan.explain.reasons import UNTOLD, Obstacle, no_room, of_gang
from kai_py.plan.placement.fit import (
    ShapeFits,
    alternatives_passed,
    lasting_preference,
    only_room_decides,
    slack,
    starts_now,
    wants_devices,
    without_devices,
)
from kai_py.plan.placement.running_fit import RunningFit
from kai_py.plan.placement.score_nodes import ScoredFit
from kai_py.plan.placement.strategy import Scoring
from kai_py.plan.placement.topology import both
from kai_py.plan.plan import Action
from kai_py.plan.state.capacity import Room
from kai_py.plan.state.statement import Statement
from kai_py.policy.fill import fill
from kai_py.policy.fit import StaticFit
from kai_py.policy.pod_rules import has_rules
from kai_py.policy.score.numa_zones import fill_by_zones, wish_for_few
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Floats, Ints
from kai_py.snapshot.shape import Shape


class Attempt(NamedTuple):
    """What stays the same while a gang is placed; ``told``: whether anybody reads why not."""

    statement: Statement
    gang: Gang
    action: Action
    room: Room
    told: bool


class Where(NamedTuple):
    """Nodes that may be used, (nodes,) bool, and which of them to prefer, (nodes,) below 1."""

    mask: Bools
    preference: Floats | None = None


@dataclass(frozen=True, slots=True)
class ShapePlacer:
    """Where shapes fit, and by which strategies and scores their pods go."""

    fits: ShapeFits = field(default_factory=ShapeFits)
    gpu_strategy: FillStrategy = FillStrategy.BINPACK
    cpu_strategy: FillStrategy = FillStrategy.BINPACK
    scoring: Scoring | None = None

    def place(self, attempt: Attempt, members: Sequence[Member], where: Where) -> Obstacle | None:
        """Place all of ``members``, pods of one shape, or say what stops them."""
        obstacle = self._place_shape(attempt, members, where)
        if obstacle is None:
            return None
        return of_gang(obstacle, attempt.gang, members, attempt.statement.placed)

    def fitting(self, attempt: Attempt, shape: Shape, mask: Bools, count: int) -> Ints:
        """(nodes,) how many pods of ``shape`` fit, devices included, at most ``count`` of those."""
        statement, room = attempt.statement, attempt.room
        running = self.fits.running(statement, shape, room)
        if running is not None:
            running.refresh()
            return np.where(mask, running.copies, 0)
        mask = self.fits.static(statement, shape, room).mask & mask
        return self.fits.room(statement, shape, mask, count, room).fitting

    def strategy(self, shape: Shape) -> FillStrategy:
        """How pods of the shape share nodes."""
        if self.gpu_strategy is self.cpu_strategy:
            return self.gpu_strategy
        return self.gpu_strategy if wants_devices(shape) else self.cpu_strategy

    def packed_fit(self, statement: Statement, shape: Shape, room: Room) -> RunningFit | None:
        """The fit by which single pods of the shape are packed, if nothing else decides."""
        if self.scoring is not None or self.strategy(shape) is not FillStrategy.BINPACK:
            return None
        return self.fits.running(statement, shape, room)

    def fit_for_singles(
        self, statement: Statement, shape: Shape, room: Room
    ) -> RunningFit | ScoredFit | None:
        """The fit by which single pods of the shape go, by score or packed, while it has room."""
        scoring = self.scoring
        if scoring is None:
            return self.packed_fit(statement, shape, room)
        if not scoring.foresees or not only_room_decides(statement, shape):
            return None
        if scoring.by_default and not wants_devices(shape):
            off = self.fits.running(statement, shape, room, off_devices=True)
            if off is not None and off.has_room():
                return off
        return scoring.fit(statement, shape, room, self.fits.statics)

    def fit_for_gangs(self, statement: Statement, shape: Shape, room: Room) -> RunningFit | None:
        """The fit by which pods of the shape go that start together, if room alone decides."""
        scoring = self.scoring
        if scoring is not None and not (scoring.by_default and wants_devices(shape)):
            return None
        return self.fits.running(statement, shape, room)

    def _place_shape(
        self, attempt: Attempt, members: Sequence[Member], where: Where
    ) -> Obstacle | None:
        scoring = self.scoring
        if scoring is None or members[0].shape.uses_claims:
            return self._place_together(attempt, members, where)
        together = self._better_together(attempt, members, where, scoring)
        if together is None:
            return self._place_scored(attempt, members, where, scoring)
        return self._place_together(attempt, members, together)

    def _better_together(
        self, attempt: Attempt, members: Sequence[Member], where: Where, scoring: Scoring
    ) -> Where | None:
        """Where no score is asked: gangs with whole GPUs, and other pods off nodes with devices."""
        statement, shape, count = attempt.statement, members[0].shape, len(members)
        if scoring.by_default and wants_devices(shape):
            return where if count > 1 and shape.gpu_share is None else None
        if not scoring.by_default or has_rules(shape):
            return None
        static = self.fits.static(statement, shape, attempt.room)
        mask = where.mask & without_devices(statement, static)
        holds = mask.any() and self.fitting(attempt, shape, mask, count).sum() >= count
        return where._replace(mask=mask) if holds else None

    def _place_scored(
        self, attempt: Attempt, members: Sequence[Member], where: Where, scoring: Scoring
    ) -> Obstacle | None:
        """One after the other: each changes what the next one's choices are worth."""
        statement, room, shape = attempt.statement, attempt.room, members[0].shape
        static = self.fits.static(statement, shape, room)
        preference = lasting_preference(statement, shape, static)
        if where.preference is not None:
            preference = preference + where.preference
        if scoring.foresees and only_room_decides(statement, shape):
            mask, nodes = static.mask & where.mask, scoring.nodes(statement, room)
            rows = ScoredFit(nodes, shape, mask, preference).next_rows(len(members))
            done = len(rows)
            if done == len(members):
                statement.place_plain(attempt.gang, members, rows, attempt.action, room)
        else:
            inside = where._replace(preference=preference)
            done = self._place_in_turn(attempt, members, inside, scoring)
        if done == len(members):
            return None
        if not attempt.told:
            return UNTOLD
        copies = self.fitting(attempt, shape, where.mask, 1)
        return no_room(statement, shape, static, copies=copies, needed=len(members), found=done)

    def _place_in_turn(
        self, attempt: Attempt, members: Sequence[Member], where: Where, scoring: Scoring
    ) -> int:
        """How many found a place, each seeing those before it."""
        statement, gang, action, room, _ = attempt
        shape, scored = members[0].shape, scoring.nodes(statement, room)
        static = self.fits.static(statement, shape, room)
        for done, member in enumerate(members):
            mask, limited = static.mask & where.mask, statement.limits.copies(shape, room, 1)
            if limited is not None:
                mask &= limited > 0
            within, preference = statement.zones.within(shape, room, 1), where.preference
            if within is not None:
                preference = both(preference, wish_for_few(within))
            pick = scored.pick(shape, mask, preference)
            if pick is None or not statement.place(
                gang, [member], pick.row, action, room=room, part=pick.part
            ):
                return done
            scored.note(shape, pick.row)
            if has_rules(shape):
                static = self.fits.static(statement, shape, room)
        return len(members)

    def _place_plain(
        self, attempt: Attempt, members: Sequence[Member], where: Where, running: RunningFit
    ) -> Obstacle | None:
        statement, gang, action, room, _ = attempt
        shape, count = members[0].shape, len(members)
        running.refresh()
        copies = np.where(where.mask, running.copies, 0)
        preference = running.preference
        if where.preference is not None:
            preference = preference + where.preference
        chunks = fill(count, copies, preference, running.slack, self.strategy(shape))
        found = sum(pods for _, pods in chunks)
        if found < count:
            if not attempt.told:
                return UNTOLD
            static = self.fits.static(statement, shape, room)
            return no_room(statement, shape, static, copies=copies, needed=count, found=found)
        rows = [row for row, pods in chunks for _ in range(pods)]
        statement.place_plain(gang, members, rows, action, room)
        return None

    def _place_together(
        self, attempt: Attempt, members: Sequence[Member], where: Where
    ) -> Obstacle | None:
        statement, gang, action, room, _ = attempt
        shape = members[0].shape
        running = self.fits.running(statement, shape, room)
        if running is not None:
            return self._place_plain(attempt, members, where, running)
        paired = has_rules(shape)
        static = self.fits.static(statement, shape, room)
        closed = np.zeros(len(statement.snapshot.nodes), dtype=np.bool_)
        left = list(members)
        while left:
            mask = static.mask & where.mask & ~closed
            together = len(left) if shape.shares_claims and len(left) == len(members) else 0
            count = 1 if paired or together else len(left)
            found = self.fits.room(statement, shape, mask, count, room, together=together)
            chunks = fill_by_zones(
                count,
                found.fitting,
                self._preference(attempt, shape, static, where, mask) + alternatives_passed(found),
                slack(shape, statement.snapshot.resources, found.free),
                self.strategy(shape),
                within=statement.zones.within(shape, room, count),
                first=found.first,
            )
            if sum(pods for _, pods in chunks) < count:
                if not attempt.told:
                    return UNTOLD
                done = len(members) - len(left) + sum(pods for _, pods in chunks)
                return no_room(
                    statement, shape, static, copies=found.copies, needed=len(members), found=done
                )
            for row, pods in chunks:
                placed = statement.place(gang, left[:pods], row, action, room=room)
                del left[:placed]
                if placed < pods:
                    closed[row] = True
                    break
            if paired:
                static = self.fits.static(statement, shape, room)
        return None

    def _preference(
        self, attempt: Attempt, shape: Shape, static: StaticFit, where: Where, mask: Bools
    ) -> Floats:
        statement = attempt.statement
        preference = lasting_preference(statement, shape, static)
        preference = preference + starts_now(statement, shape, mask, attempt.room)
        return preference if where.preference is None else preference + where.preference
