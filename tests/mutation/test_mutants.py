"""The sampler of mutants, and its nightly run."""

import ast

import pytest

from tests.mutation.mutants import sample
from tests.mutation.run import REPOSITORY, survivors

KILLED = 0.9
"""The least part of a sample that tests notice."""


def test_mutants_differ_from_their_module_in_one_place_and_come_from_the_seed():
    mutants = sample(REPOSITORY, 25, seed=3)
    assert mutants == sample(REPOSITORY, 25, seed=3)
    for mutant in mutants:
        original = ast.unparse(ast.parse((REPOSITORY / mutant.module).read_text(encoding="utf-8")))
        before, after = mutant.change.split(" -> ")
        assert before != after
        assert mutant.source != original
        ast.parse(mutant.source)


@pytest.mark.nightly
def test_most_mutants_are_killed():
    mutants = sample(REPOSITORY, 200, seed=1)
    alive = [f"{each.module}:{each.line}: {each.change}" for each in survivors(mutants)]
    assert len(alive) <= (1 - KILLED) * len(mutants), "\n".join(alive)
