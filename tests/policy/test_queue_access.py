import pytest

from kai_py.snapshot.tables.queue_access import closed_queue
from kai_py.snapshot.tables.queue_tree import build_queue_table
from kai_py.snapshot.tables.queues import closed_by_default
from tests.support.records import replace
from tests.support.scenario import queue

LABELS = {"ml": {"team": "ml"}, "web": {"team": "web"}, "bare": {}}
BY_NAME = {"namespaces": {"names": ["ml"]}}
BY_LABEL = {"namespaces": {"selector": {"matchLabels": {"team": "ml"}}}}
ONE_OF = {
    "namespaces": {
        "selector": {
            "matchExpressions": [{"key": "team", "operator": "In", "values": ["ml", "web"]}]
        }
    }
}
EITHER = {"namespaces": {"names": ["bare"], "selector": {"matchLabels": {"team": "ml"}}}}


@pytest.mark.parametrize(
    ("spec", "open_to"),
    [
        ({}, {"ml", "web", "bare", "unknown"}),
        (BY_NAME, {"ml"}),
        (BY_LABEL, {"ml"}),
        (ONE_OF, {"ml", "web"}),
        (EITHER, {"ml", "bare"}),
    ],
)
def test_a_queue_takes_namespaces_by_name_or_label(spec, open_to):
    table, _ = build_queue_table([queue("q", **spec)], ("gpu",))
    taken = {name for name in (*LABELS, "unknown") if not closed_queue(table, 0, name, LABELS)}
    assert taken == open_to


def test_a_rule_holds_for_the_queues_below():
    table, _ = build_queue_table([queue("org", **BY_NAME), queue("team", parent="org")], ("gpu",))
    team = table.positions["team"]
    assert closed_queue(table, team, "web", LABELS) == "org"
    assert closed_queue(table, team, "ml", LABELS) == ""


def test_closed_by_default_a_queue_takes_the_namespaces_that_name_it():
    labels = {name: {"scheduling.kai.io/queue-name": name} for name in ("a", "below", "org")}
    specs = closed_by_default(
        [
            queue("a"),
            queue("org"),
            queue("below", parent="org"),
            queue("ml-org", **BY_NAME),
            queue("under", parent="ml-org"),
            replace(queue("kai"), api_version="scheduling.run.ai/v2"),
        ]
    )
    table, _ = build_queue_table(specs, ("gpu",))

    def taken(name):
        at = table.positions[name]
        return {each for each in (*labels, "ml") if not closed_queue(table, at, each, labels)}

    assert taken("a") == {"a"}
    assert taken("below") == {"below"}
    assert taken("ml-org") == taken("under") == {"ml"}
    assert taken("kai") == {*labels, "ml"}
