"""What several tests of whole cycles observe."""

from unittest.mock import patch

import pytest

import kai_py.plan.actions.allocate


@pytest.fixture
def turns():
    """The keys of the gangs that allocate had a look at."""
    seen = []
    real = kai_py.plan.actions.allocate._allocate_gang

    def allocate_gang(state, gang, solver):
        seen.append(gang.key)
        return real(state, gang, solver)

    with patch.object(kai_py.plan.actions.allocate, "_allocate_gang", allocate_gang):
        yield seen
