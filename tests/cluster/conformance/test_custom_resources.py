"""Custom resources: pruning, defaults, checks, status."""

from tests.cluster.conformance.place import Place, refusal, serve_widgets, widget
from tests.support.cluster.api import STRATEGIC_MERGE_PATCH


async def test_custom_resources_are_pruned_defaulted_and_checked(place: Place):
    await serve_widgets(place)
    api = place.api
    created = await api.post(
        place.widgets, {**widget(place, "a", size=1, extra=1), "status": {"used": 1}}
    )
    assert created["spec"] == {"size": 1, "colour": "red"}
    assert "status" not in created
    assert created["metadata"]["generation"] == 1
    for spec, field in (
        ({}, "spec.size: Required value"),
        ({"size": "1"}, "spec.size: Invalid value"),
        ({"size": -1}, "spec.size: Invalid value"),
        ({"size": 1, "colour": "green"}, "spec.colour: Unsupported value"),
        ({"size": 2, "limit": 1}, "limit below size"),
    ):
        error = await refusal(api.post(place.widgets, widget(place, "b", **spec)))
        assert error.code == 422
        assert field in str(error)
    assert (await refusal(api.put(f"{place.widgets}/a", widget(place, "a", size=2)))).code == 422
    strict = api.request(
        "POST",
        place.widgets,
        widget(place, "c", size=1, extra=1),
        parameters={"fieldValidation": "Strict"},
    )
    error = await refusal(strict)
    assert error.code == 400
    assert 'unknown field "spec.extra"' in str(error)
    body = {"status": {"used": 3}, "spec": {"size": 9}}
    shown = await api.patch(f"{place.widgets}/a/status", body)
    assert (shown["status"], shown["spec"]["size"]) == ({"used": 3}, 1)
    assert shown["metadata"]["generation"] == 1
    shown = await api.patch(f"{place.widgets}/a", {"spec": {"size": 2}})
    assert (shown["metadata"]["generation"], shown["status"]) == (2, {"used": 3})
    error = await refusal(
        api.patch(f"{place.widgets}/a", {"spec": {}}, content_type=STRATEGIC_MERGE_PATCH)
    )
    assert error.code == 415
