"""Counts and lists in messages; what others wrote reaches no terminal and no log as it is."""

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.texts import count_of, first_of, printable, printable_json

ATTACK = "\x1b]0;pwned\x07\x1b[2J\nERROR forged\x9b1m\u202egnp.exe\u2066\x7f"


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


def dangerous(text):
    return [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs")]


@pytest.mark.slow
@given(st.text())
def test_nothing_that_is_shown_controls_or_hides(text):
    assert not dangerous(printable(text))
    assert "\n" not in printable(text)


def test_no_character_that_controls_or_hides_is_left_out():
    assert not [c for c in dangerous(map(chr, range(sys.maxunicode + 1))) if c in printable(c)]


@given(st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"])))
def test_letters_of_all_scripts_stay(text):
    assert printable(text) == text


@given(st.recursive(st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner)))
def test_a_json_document_says_the_same(value):
    text = printable_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert json.loads(text) == value
    assert not dangerous(text.replace("\n", ""))
