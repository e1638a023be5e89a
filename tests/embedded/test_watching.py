"""Watches, and the selectors of lists and watches."""

import pytest

from kai_py.embedded.deletion import delete
from kai_py.embedded.errors import RequestError
from kai_py.embedded.listing import Watch
from kai_py.embedded.resources import CONFIG_MAPS, EVENTS, EVENTS_GROUP, PODS
from kai_py.embedded.selectors import label_selector, parse_fields, parse_labels
from kai_py.embedded.subresources import bind
from tests.embedded.manifests import config_map, pod


def told(watch):
    return [(event.type, event.object["metadata"]["name"]) for event in watch.poll()]


def test_a_watch_without_revision_begins_with_what_is_there(bare):
    bare.create(pod("a"))
    watch = Watch(bare.store, PODS)
    assert told(watch) == [("ADDED", "a")]
    bare.create(pod("b"))
    delete(bare.api, PODS, "a", "default")
    assert told(watch) == [("ADDED", "b"), ("DELETED", "a")]


def test_a_watch_from_a_revision_tells_what_came_after(bare):
    revision = int(bare.create(pod("a"))["metadata"]["resourceVersion"])
    bare.create(pod("b"))
    assert told(Watch(bare.store, PODS, revision=revision)) == [("ADDED", "b")]


def test_entering_and_leaving_a_selection(bare):
    unbound = Watch(bare.store, PODS, selects=lambda pod: not pod["spec"].get("nodeName"))
    bound = Watch(bare.store, PODS, selects=lambda pod: bool(pod["spec"].get("nodeName")))
    bare.create(pod("a"))
    assert (told(unbound), told(bound)) == ([("ADDED", "a")], [])
    binding = bind(bare.api, "a", "default", {"target": {"name": "n"}})
    left, entered = unbound.poll()[0], bound.poll()[0]
    assert (left.type, entered.type) == ("DELETED", "ADDED")
    assert "nodeName" not in left.object["spec"]
    revision = binding["metadata"]["resourceVersion"]
    assert left.object["metadata"]["resourceVersion"] == revision


def test_a_namespaced_watch_sees_its_namespace_only(bare):
    bare.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
    watch = Watch(bare.store, CONFIG_MAPS, namespace="x")
    bare.create(config_map("a"))
    bare.create(config_map("b", namespace="x"))
    assert told(watch) == [("ADDED", "b")]


def test_a_future_revision_is_refused(bare):
    with pytest.raises(RequestError) as caught:
        Watch(bare.store, PODS, revision=bare.store.revision + 1)
    assert caught.value.code == 504


def test_bookmarks_carry_the_revision_reached(bare):
    watch = Watch(bare.store, PODS)
    watch.poll()
    bare.create(config_map("other-kind"))
    watch.poll()
    mark = watch.bookmark(initial_events_end=True).object
    assert mark["metadata"]["resourceVersion"] == str(bare.store.revision)
    assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert mark["kind"] == "Pod"


def test_both_event_groups_show_the_same_events(bare):
    watch = Watch(bare.store, EVENTS_GROUP)
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "a", "namespace": "default"},
        "message": "text",
    }
    bare.create(event)
    shown = watch.poll()[0].object
    assert shown["apiVersion"] == "events.k8s.io/v1"
    assert (shown["regarding"]["name"], shown["note"]) == ("a", "text")
    new = {**shown, "metadata": {"name": "f", "namespace": "default"}, "note": "other"}
    bare.api.create(EVENTS_GROUP, new, "default")
    stored = bare.api.get(EVENTS, "f", "default")
    assert (stored["apiVersion"], stored["message"]) == ("v1", "other")
    # Clients sort by it whether it was set or not.
    assert stored["lastTimestamp"] is None


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
        ("a>1", {"a": "3"}, True),
        ("a>1", {"a": "x"}, False),
        ("a<3,a", {"a": "-5"}, True),
        ("a in (),b", {"a": "", "b": "c"}, True),
        ("a in (,c)", {"a": ""}, True),
        ("in in (in)", {"in": "in"}, True),
        (" ! a\t", {}, True),
        ("a=,b", {"a": "", "b": ""}, True),
    ],
)
def test_text_selectors(selector, labels, expected):
    assert parse_labels(selector)(labels) is expected


@pytest.mark.parametrize(
    "selector",
    [
        "a=b=c",
        "a in b",
        "(a)",
        "a b",
        ",a",
        "a,",
        "a in (b c)",
        "a/",
        "a=-t",
        "a>b",
        "!a=b",
        "a in (b",
    ],
)
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


def test_commas_and_equals_signs_are_escaped_in_the_value_of_a_field():
    known = ("spec.nodeName",)
    assert parse_fields(r"spec.nodeName=a\,b\=c\\", known)({"spec": {"nodeName": "a,b=c\\"}})
    for text in (r"spec.nodeName=a\b", "spec.nodeName=a=b", "spec.nodeName"):
        with pytest.raises(RequestError):
            parse_fields(text, known)


def test_an_unknown_field_is_a_bad_request():
    with pytest.raises(RequestError, match="not a known field selector"):
        parse_fields("spec.colour=red", ("metadata.name",))
