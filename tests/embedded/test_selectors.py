import pytest

from kai_py.embedded.errors import RequestError
from kai_py.embedded.selectors import label_selector, parse_fields, parse_labels


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        ("", {}, True),
        ("app=web", {"app": "web"}, True),
        ("app==web", {"app": "db"}, False),
        ("app!=web", {}, True),
        ("app!=web", {"app": "web"}, False),
        ("tier in (a, b),app", {"tier": "b", "app": ""}, True),
        ("tier in (a,b)", {}, False),
        ("tier notin (a,b)", {}, True),
        ("tier notin (a,b)", {"tier": "a"}, False),
        ("!old", {"old": "x"}, False),
        ("x.io/a-b=c", {"x.io/a-b": "c"}, True),
        ("app=", {"app": ""}, True),
        ("app=", {}, False),
    ],
)
def test_text_selectors(selector, labels, expected):
    assert parse_labels(selector)(labels) is expected


@pytest.mark.parametrize("selector", ["a=b=c", "a in b", "(a)", "a b"])
def test_malformed_selectors_are_bad_requests(selector):
    with pytest.raises(RequestError) as caught:
        parse_labels(selector)
    assert caught.value.code == 400


def test_selector_documents():
    expressions = [
        {"key": "tier", "operator": "NotIn", "values": ["x"]},
        {"key": "gpu", "operator": "Exists"},
        {"key": "old", "operator": "DoesNotExist"},
    ]
    selects = label_selector({"matchLabels": {"app": "web"}, "matchExpressions": expressions})
    assert selects({"app": "web", "gpu": "", "tier": "y"})
    assert not selects({"app": "web", "gpu": "", "tier": "x"})
    assert not selects({"app": "web", "gpu": "", "old": ""})
    assert label_selector({})({"any": "thing"})
    assert not label_selector(None)({})


def test_field_selectors_compare_text_and_absent_fields_are_empty():
    bound = {"metadata": {"name": "a"}, "spec": {"nodeName": "n", "hostNetwork": True}}
    free = {"metadata": {"name": "b"}, "spec": {}}
    known = ("metadata.name", "spec.nodeName", "spec.hostNetwork")
    assert parse_fields("spec.nodeName=", known)(free)
    assert not parse_fields("spec.nodeName=", known)(bound)
    assert parse_fields("spec.nodeName!=,metadata.name=a", known)(bound)
    assert parse_fields("spec.hostNetwork=true", known)(bound)


def test_an_unknown_field_is_a_bad_request():
    with pytest.raises(RequestError, match="not a known field selector"):
        parse_fields("spec.colour=red", ("metadata.name",))
