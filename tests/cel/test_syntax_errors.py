"""Syntax errors in the words of the API server, as recorded from a real one.

``tests/corpus/cel/syntax_errors.json``: by expression the server's first error.
"""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.cel.expression import CompileError
from kai_py.cel.syntax_errors import first_fault
from kai_py.dra.selectors.selector import SelectorFeatures, compile_selector
from tests.dra.selectors.generated import selectors
from tests.support.repository import ROOT

RECORDED = ROOT / "tests/corpus/cel/syntax_errors.json"
SERVER = msgspec.json.decode(RECORDED.read_bytes(), type=dict[str, str])
DIFFERENT = frozenset({"[,]", "return true"})
"""A list of nothing but a comma, which cel-go reads as empty; a reserved word before the error."""


def ours(text):
    compiled = compile_selector(text, SelectorFeatures(list_attributes=False))
    said = compiled.message if isinstance(compiled, CompileError) else ""
    return said.partition("compilation failed: ")[2].partition("\n")[0]


@pytest.mark.parametrize("text", SERVER)
def test_the_first_error_is_the_servers(text):
    assert (ours(text) == SERVER[text]) is (text not in DIFFERENT)


@pytest.mark.slow
def test_no_fault_is_seen_in_what_compiles():
    texts = [text for text in selectors(3, 300) if not ours(text)]
    assert len(texts) > 50
    assert [text for text in texts if first_fault(text) is not None] == []


@given(st.text("ab1.\"'()[]{}?:,=&|!- \n", max_size=12))
def test_any_text_has_an_answer(text):
    found = first_fault(text)
    assert found is None or -1 <= found.start <= len(text)
