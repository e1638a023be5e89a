import pytest

from tests.support import patience as module
from tests.support.patience import LARGEST_FACTOR, LARGEST_LIMIT_FACTOR, patience, time_limit


@pytest.mark.parametrize(
    ("speed", "load", "factor"),
    [(1.0, 0.5, 1.0), (0.5, 1.0, 1.0), (2.0, 0.0, 2.0), (1.0, 3.0, 3.0), (2.0, 3.0, 6.0)],
)
def test_it_grows_with_slowness_and_load_and_never_shrinks(monkeypatch, speed, load, factor):
    monkeypatch.setattr(module, "_speed", lambda: speed)
    monkeypatch.setattr(module, "_load", lambda: load)
    assert patience(10.0) == 10.0 * factor


def test_it_has_an_end(monkeypatch):
    monkeypatch.setattr(module, "_load", lambda: 1000.0)
    assert patience(1.0) == LARGEST_FACTOR


def test_a_test_that_hangs_ends_on_the_busiest_machine(monkeypatch):
    monkeypatch.setattr(module, "_load", lambda: 1000.0)
    assert time_limit(300.0) == 300.0 * LARGEST_LIMIT_FACTOR
