"""Counts and lists in messages."""

import pytest

from kai_py.api.phrases import count_of, first_of


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 GPUs"), (0.5, "0.5 GPUs"), (1, "1 GPU"), (1.0, "1 GPU"), (2500, "2,500 GPUs")],
)
def test_only_one_is_singular(number, text):
    assert count_of(number, "GPU") == text


def test_of_a_long_list_the_first_names_are_shown():
    assert first_of([]) == ""
    assert first_of(list("abcde")) == "a, b, c, d, e"
    assert first_of(list("abcdef")) == "a, b, c, d, e and 1 more"
    assert first_of(list("abcde"), 2) == "a, b and 3 more"
