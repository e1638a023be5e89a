import re

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kai_py.api.manifests import ManifestError, line_at, read_documents

TEXT = """\
# a comment
kind: Job

spec:
  items:
  - name: a
    size: 1
  # between
  - {name: b}
---
---
kind: Pod
"""


def value(text):
    (document,) = read_documents(text)
    return document.value


TABBED = """\
a: one\t
b: two\t# comment
c:\tthree
"d"\t: "four"\t
e: [\tfive,\t
\tsix\t]
f: run\tthis\t now\t
g: |
  \tkept\t
h: of two\t
  lines\t# comment
"""


def test_tabs_are_blanks_where_the_reader_of_kubectl_takes_them():
    assert value(TABBED) == {
        "a": "one",
        "b": "two",
        "c": "three",
        "d": "four",
        "e": ["five", "six"],
        "f": "run\tthis\t now",
        "g": "\tkept\t\n",
        "h": "of two lines",
    }


@pytest.mark.parametrize("text", ["a: 1\n\tb: 2\n", "a:\n \tb: 2\n", "-\ta: 1\n", "a: 1\n\t\n"])
def test_tabs_do_not_indent(text):
    with pytest.raises(ManifestError, match="cannot start any token"):
        value(text)


def test_json_that_is_indented_by_tabs_is_yaml():
    assert value('{\n\t"a": {\n\t\t"b": [\n\t\t\t1\n\t\t]\n\t}\n}\n') == {"a": {"b": [1]}}


def test_files_put_together_keep_their_encoding_marks():
    documents = read_documents("\ufeff# a\na: 1\n---\n\ufeffb: 2\n---\n\ufeff---\nc: 3\n")
    assert [each.value for each in documents] == [{"a": 1}, {"b": 2}, {"c": 3}]


def test_lines_of_fields_across_comments_and_documents():
    job, pod = (document.value for document in read_documents(TEXT))
    assert line_at(job, ("kind",)) == 2
    assert line_at(job, ("spec", "items", 0, "size")) == 7
    assert line_at(job, ("spec", "items", 1, "name")) == 9
    assert line_at(pod, ("kind",)) == 12


def test_line_of_a_field_that_is_missing_is_that_of_its_parent():
    job = read_documents(TEXT)[0].value
    assert line_at(job, ("spec", "items", 1, "size", "deep")) == 9
    assert line_at(job, ("spec", "items", 7)) == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2020-01-01", "2020-01-01"),
        ("1:30", "1:30"),
        ("1e3", 1000.0),
        ("017", 15),
        ("0x1f", 31),
        ("yes", True),
        ('"1"', "1"),
        ("08", "08"),
        ("~", None),
    ],
)
def test_scalars_mean_what_they_mean_to_the_api_server(text, expected):
    found = value(f"a: {text}")["a"]
    assert found == expected
    assert type(found) is type(expected)


def test_keys_set_twice_are_reported_with_their_line():
    (document,) = read_documents("a: 1\nb: {c: 1, c: 2}\na: 3\n")
    assert document.repeated_keys == ((2, "c"), (3, "a"))


def test_anchors_are_shared_and_merged():
    found = value("base: &b {x: 1}\nother: *b\nmore: {<<: *b, y: 2}\n")
    assert found["other"] is found["base"]
    assert found["more"] == {"x": 1, "y": 2}


def chain_of_anchors(length):
    lines = ["a0: &a0 [x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, length)]
    return "\n".join(lines)


def test_a_chain_of_anchors_does_not_explode():
    found = value(chain_of_anchors(6))
    assert found["a5"][0] is found["a5"][9] is found["a4"]
    with pytest.raises(ManifestError, match="anchors expand to more than 10,000,000 values"):
        read_documents(chain_of_anchors(40))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", 1),
        ("a: 1\nb:\n\tc: 1", 3),
        ("a: 1\nb: c: d", 2),
        ("a: {", 1),
        ("a: &x [*x]", 1),
        ("a: *nothing", 1),
        ("a: !!python/object:os.system x", 1),
    ],
)
def test_what_is_not_yaml_is_an_error_with_its_line(text, line):
    with pytest.raises(ManifestError) as caught:
        read_documents(text)
    assert caught.value.line == line


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(st.characters(codec="ascii"), max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), inner, max_size=3)
    ),
    max_leaves=12,
)


class QuotingDumper(yaml.SafeDumper):
    """Quotes the strings that the API server would read as numbers, which PyYAML leaves plain."""


QuotingDumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
)


@pytest.mark.slow
@given(st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), VALUES, min_size=1))
@example({"a": "0E0"})
def test_reads_every_value_that_yaml_can_write(document):
    assert value(yaml.dump(document, Dumper=QuotingDumper)) == document


@pytest.mark.parametrize(
    "scalar",
    [
        "9" * 5000,
        "0x" + "f" * 5000,
        "!!int ''",
        "!!int abc",
        "!!timestamp soon",
        "!!bool maybe",
        "0x_",
    ],
)
def test_a_scalar_that_is_not_what_its_tag_says_is_an_error_with_its_line(scalar):
    with pytest.raises(ManifestError, match="cannot be read as tag") as told:
        read_documents(f"a: 1\nb: {scalar}\n")
    assert told.value.line == 2
    assert len(told.value.reason) < 200
