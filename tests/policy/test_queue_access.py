import pytest

from kai_py.policy.queue_access import closed_queue
from kai_py.snapshot.tables.queue_tree import build_queue_table
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
