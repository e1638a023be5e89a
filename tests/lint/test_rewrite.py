"""Corrections change what they must and nothing else."""

import copy

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_py.api.manifests import read_documents
from kai_py.lint.rewrite import dump, rewrite, same_value
from tests.support.examples import examples

TEXT = """\
# head
kind: Job   # kind
spec:
  # before a
  a: 1  # after a

  list:
  - name: x
    deep: {k: v}
  # between
  - name: y
  text: >
    one
    && two
  last: z
# tail
---
kind: Pod
"""


def rewritten(change, text=TEXT):
    documents = [document.value for document in read_documents(text)]
    change(documents[0])
    new = rewrite(text, documents)
    assert [document.value for document in read_documents(new)] == documents
    return new


def test_nothing_changed_is_the_same_text():
    assert rewritten(lambda job: None) == TEXT


def test_a_scalar_changes_in_its_place():
    new = rewritten(lambda job: job["spec"].update(a="b: c"))
    assert new == TEXT.replace("a: 1 ", "a: 'b: c' ")


def test_a_key_is_renamed_in_its_place():
    def change(job):
        job["spec"]["aa"] = job["spec"].pop("a")

    assert rewritten(change) == TEXT.replace("  a: 1", "  aa: 1")


def test_a_key_is_removed_with_its_lines():
    new = rewritten(lambda job: job["spec"]["list"][0].pop("deep"))
    assert new == TEXT.replace("    deep: {k: v}\n", "")


def test_the_first_key_after_a_dash_is_removed():
    new = rewritten(lambda job: job["spec"]["list"][0].pop("name"))
    assert new == TEXT.replace("- name: x\n    deep", "- deep")


def test_a_key_is_added_behind_the_last_and_its_comment():
    new = rewritten(lambda job: job["spec"].update(more={"b": [1]}))
    assert new == TEXT.replace("  last: z\n", "  last: z\n  more:\n    b:\n    - 1\n")


def test_a_folded_text_stays_folded():
    new = rewritten(lambda job: job["spec"].update(text="uno && dos && tres\n"))
    assert new == TEXT.replace("    one\n    && two\n", "    uno\n    && dos\n    && tres\n")


def test_a_flow_mapping_stays_one():
    new = rewritten(lambda job: job["spec"]["list"][0]["deep"].update(more="1"))
    assert new == TEXT.replace("{k: v}", "{k: v, more: '1'}")


def test_shared_anchors_are_written_out_where_only_one_use_changes():
    text = "a: &x {k: 1}\nb: *x\n"
    documents = [document.value for document in read_documents(text)]
    documents[0]["b"] = {"k": 2}
    (found,) = read_documents(rewrite(text, documents))
    assert found.value == {"a": {"k": 1}, "b": {"k": 2}}


def test_the_same_to_python_is_not_the_same_written():
    assert not same_value(1, True)
    assert not same_value({"a": 1}, {"a": 1.0})
    assert same_value({"a": [1, "x"]}, {"a": [1, "x"]})


def test_texts_that_yaml_readers_take_for_something_else_are_quoted():
    for text in (
        "yes",
        "y",
        "N",
        "1e3",
        "012",
        "0x1",
        "null",
        "~",
        "1.5",
        "2020-01-01",
        "a: b",
        "",
    ):
        written = dump({"k": text})
        assert yaml.safe_load(written) == {"k": text}
        assert written != f"k: {text}\n"


KEYS = st.from_regex(r"[a-z]{1,4}", fullmatch=True)
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-99, 99),
    st.sampled_from(["x", "a && b", "on", "1", "8Gi", "two words\n", "a\nb\n", "it's: {", "# no"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)


@st.composite
def changes(draw):
    """Give a document and another made from it by changing, adding and removing."""
    before = draw(DOCUMENTS)
    after = copy.deepcopy(before)
    for _ in range(draw(st.integers(1, 3))):
        place = after
        while isinstance(place, dict | list) and place and draw(st.booleans()):
            keys = range(len(place)) if isinstance(place, list) else sorted(place)
            inner = place[draw(st.sampled_from(list(keys)))]
            if not isinstance(inner, dict | list) or not inner:
                break
            place = inner
        if isinstance(place, list):
            place[draw(st.integers(0, len(place) - 1))] = draw(VALUES)
        elif place and draw(st.booleans()):
            place.pop(draw(st.sampled_from(sorted(place))))
        else:
            place[draw(KEYS)] = draw(VALUES)
    return before, after


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(changes(), st.booleans(), st.sampled_from([None, True, False]))
def test_any_change_reads_back_as_meant(change, commented, flow):
    before, after = change
    text = yaml.safe_dump(before, default_flow_style=flow, sort_keys=False)
    if commented and flow is False:
        text = "".join(
            f"{line} # c\n" if line.endswith(":") else f"{line}\n" for line in text.splitlines()
        )
    second = "---\nkind: Pod # untouched\n"
    documents = [document.value for document in read_documents(text + second)]
    new = rewrite(text + second, [after, documents[1]])
    found = [document.value for document in read_documents(new)]
    assert same_value(found[0], after)
    assert new.endswith(second)
