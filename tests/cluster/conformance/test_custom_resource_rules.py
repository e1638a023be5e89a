"""Rules of custom resources: published ones hold, fail and are refused alike on both clusters."""

from typing import Any

from tests.cluster.conformance.place import (
    DEFINITIONS,
    Json,
    Place,
    refusal,
    serve,
    widget,
    widget_definition,
)
from tests.embedded.published_rules import (
    BROKEN,
    BROKEN_SCHEMA,
    FAILING,
    HOLDING,
    RULES,
    TRANSITIONS,
    broken,
    failing,
)


def definition(place: Place, spec: Json) -> Json:
    made = widget_definition(place.group)
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec
    return made


async def serve_rules(place: Place, cases: list[tuple[Any, ...]]) -> None:
    """Serve widgets with one field per case: its rule and schema come first in the case."""
    properties = {
        f"field{number}": {**schema, RULES: [{"rule": rule}]}
        for number, (rule, schema, *_) in enumerate(cases)
    }
    await serve(place, definition(place, {"type": "object", "properties": properties}))


async def causes(request: Any) -> list[tuple[str, str]]:
    error = await refusal(request)
    assert error.code == 422, error
    return [(cause["field"], cause["message"]) for cause in error.details["causes"]]


async def test_published_rules_hold(place: Place):
    await serve_rules(place, HOLDING)
    for number, (rule, _, good, bad) in enumerate(HOLDING):
        field = f"field{number}"
        await place.api.post(place.widgets, widget(place, f"good-{number}", **{field: good}))
        found = await causes(place.api.post(place.widgets, widget(place, "bad", **{field: bad})))
        assert found == [(f"spec.{field}", broken(bad, rule))]


async def test_transition_rules_compare_with_the_value_before(place: Place):
    await serve_rules(place, TRANSITIONS)
    for number, (rule, _, old, good, bad) in enumerate(TRANSITIONS):
        field, path = f"field{number}", f"{place.widgets}/a-{number}"
        await place.api.post(place.widgets, widget(place, f"a-{number}", **{field: old}))
        found = await causes(place.api.put(path, await changed(place, path, field, bad)))
        assert found == [(f"spec.{field}", broken(bad, rule))]
        await place.api.put(path, await changed(place, path, field, good))


async def changed(place: Place, path: str, field: str, value: Any) -> Json:
    document = await place.api.get(path)
    return {**document, "spec": {field: value}}


async def test_a_rule_that_fails_when_it_runs_is_a_field_error(place: Place):
    await serve_rules(place, FAILING)
    for number, (_, schema, content, message) in enumerate(FAILING):
        field = f"field{number}"
        found = await causes(
            place.api.post(place.widgets, widget(place, "bad", **{field: content}))
        )
        assert found == [(f"spec.{field}", failing(schema, message))]


async def test_a_broken_rule_refuses_the_definition(place: Place):
    for rule, where, message in BROKEN:
        written = {"rule": rule} if isinstance(rule, str) else rule
        if not isinstance(written["rule"], str):
            continue
        made = definition(place, {**BROKEN_SCHEMA, RULES: [written]})
        found = await causes(place.api.post(DEFINITIONS, made))
        root = "spec.validation.openAPIV3Schema.properties[spec]"
        assert [path for path, _ in found] == [f"{root}.{RULES}[0].{where}"]
        assert message in found[0][1]
