import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.embedded.documents import clone
from kai_py.embedded.errors import RequestError
from kai_py.embedded.patches import (
    AppliedFields,
    apply_json_patch,
    apply_merge_patch,
    apply_strategic_patch,
)


@pytest.mark.parametrize(  # the table of RFC 7396, appendix A
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": "foo"}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    ],
)
def test_merge_patch(target, patch, result):
    assert apply_merge_patch(target, patch) == result


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "conditions", "finalizers"]), JSON_VALUES)


@given(target=OBJECTS, patch=OBJECTS)
def test_merge_patch_is_idempotent_and_leaves_its_target_alone(target, patch):
    before = clone(target)
    once = apply_merge_patch(target, patch)
    assert target == before
    assert apply_merge_patch(once, patch) == once


def test_json_patch_operations():
    document = {"a": [1, 2], "b": {"c~d/e": 1}}
    operations = [
        {"op": "test", "path": "/a/0", "value": 1},
        {"op": "add", "path": "/a/1", "value": 9},
        {"op": "add", "path": "/a/-", "value": 3},
        {"op": "remove", "path": "/a/0"},
        {"op": "replace", "path": "/b/c~0d~1e", "value": 2},
        {"op": "copy", "from": "/b", "path": "/f"},
        {"op": "move", "from": "/b/c~0d~1e", "path": "/g"},
    ]
    result = apply_json_patch(document, operations)
    assert result == {"a": [9, 2, 3], "b": {}, "f": {"c~d/e": 2}, "g": 2}
    assert document == {"a": [1, 2], "b": {"c~d/e": 1}}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "remove", "path": "/missing"},
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "add", "path": "/list/9", "value": 1},
    ],
)
def test_a_json_patch_that_does_not_apply_is_refused(operation):
    with pytest.raises(RequestError) as caught:
        apply_json_patch({"a": 1, "list": []}, [operation])
    assert caught.value.code == 422


def test_strategic_merge_by_key():
    present = {
        "conditions": [{"type": "A", "status": "True", "x": 1}, {"type": "B", "status": "True"}]
    }
    patch = {"conditions": [{"type": "A", "status": "False"}, {"type": "C", "status": "True"}]}
    assert apply_strategic_patch(present, patch)["conditions"] == [
        {"type": "A", "status": "False", "x": 1},
        {"type": "C", "status": "True"},
        {"type": "B", "status": "True"},
    ]


def test_strategic_deletion_of_one_consumer():
    present = {"reservedFor": [{"uid": "1", "name": "a"}, {"uid": "2", "name": "b"}]}
    patch = {"reservedFor": [{"$patch": "delete", "uid": "1"}]}
    assert apply_strategic_patch(present, patch) == {"reservedFor": [{"uid": "2", "name": "b"}]}


def test_strategic_directives():
    present = {"finalizers": ["a", "b"], "tolerations": [{"key": "x"}], "s": {"t": 1, "u": 2}}
    patch = {
        "finalizers": ["c"],
        "$deleteFromPrimitiveList/finalizers": ["a"],
        "tolerations": [{"key": "y"}],
        "s": {"$retainKeys": ["v"], "v": 3},
    }
    assert apply_strategic_patch(present, patch) == {
        "finalizers": ["c", "b"],
        "tolerations": [{"key": "y"}],
        "s": {"v": 3},
    }
    assert apply_strategic_patch({"s": {"t": 1}}, {"s": {"$patch": "replace", "u": 1}}) == {
        "s": {"u": 1}
    }
    assert apply_strategic_patch({"s": {"t": 1}}, {"s": {"$patch": "delete"}}) == {}


def test_strategic_element_order():
    present = {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}
    patch = {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": []}
    assert [each["name"] for each in apply_strategic_patch(present, patch)["containers"]] == [
        "b",
        "a",
    ]


def test_a_delete_directive_in_a_list_without_a_key_is_refused():
    with pytest.raises(RequestError, match="no merge key"):
        apply_strategic_patch({"tolerations": []}, {"tolerations": [{"$patch": "delete"}]})


def present(**fields):
    return {"metadata": {"uid": "u"}, **fields}


def test_applying_again_removes_what_is_no_longer_mentioned():
    applied = AppliedFields()
    first = {"spec": {"a": 1, "containers": [{"name": "x", "image": "1", "tty": True}]}}
    applied.remember("u", first, manager="me")
    second = {"spec": {"containers": [{"name": "x", "image": "1"}]}}
    merged = applied.merge(present(**clone(first)), second, manager="me", force=False)
    assert merged["spec"] == {"containers": [{"name": "x", "image": "1"}]}


def test_two_managers_conflict_over_a_value_unless_forced():
    applied = AppliedFields()
    applied.remember("u", {"spec": {"a": 1, "b": 1}}, manager="other")
    document = present(spec={"a": 1, "b": 1})
    with pytest.raises(RequestError, match=r'conflict with "other": \.spec\.a') as caught:
        applied.merge(document, {"spec": {"a": 2}}, manager="me", force=False)
    assert caught.value.code == 409
    assert applied.merge(document, {"spec": {"a": 1}}, manager="me", force=False) == document
    forced = applied.merge(document, {"spec": {"a": 2}}, manager="me", force=True)
    assert forced["spec"] == {"a": 2, "b": 1}
