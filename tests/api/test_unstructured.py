"""Objects of kinds without a record: what is kept of fields that may hold anything."""

import pytest

from kai_py.api.records.unstructured import MAX_NESTING, unstructured_decoder


def nested(levels):
    return b"[" * levels + b"1" + b"]" * levels


def depth(value):
    levels = 0
    while isinstance(value, list) and value:
        value, levels = value[0], levels + 1
    return levels, value


@pytest.mark.parametrize(
    ("levels", "kept"),
    [
        (0, (0, 1)),
        (MAX_NESTING, (MAX_NESTING, 1)),
        (MAX_NESTING + 1, (MAX_NESTING, None)),
        (900, (MAX_NESTING, None)),
    ],
)
def test_what_is_nested_deeply_is_left_out(levels, kept):
    """A message that quotes it, or a comparison with another version, would fail."""
    decode = unstructured_decoder(["spec.replicas"])
    spec = b'{"replicas": %s, "other": {}}' % nested(levels)
    found = decode(b'{"metadata": {"name": "a"}, "spec": %s}' % spec)
    assert depth(found.content["spec"]["replicas"]) == kept


def test_mappings_are_cut_where_lists_are():
    body = b'{"a":' * 300 + b"1" + b"}" * 300
    found = unstructured_decoder(["spec"])(b'{"metadata": {"name": "a"}, "spec": %s}' % body)
    levels, value = 0, found.content["spec"]
    while isinstance(value, dict):
        levels, value = levels + 1, value["a"]
    assert (levels, value) == (MAX_NESTING, None)
