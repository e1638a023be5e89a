"""Pages, selectors, watches, tables."""

import json

from tests.cluster.conformance.place import (
    Place,
    bind,
    config_map,
    events,
    pod,
    refusal,
    serve_widgets,
    told,
    widget,
)

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


async def test_a_list_continues_on_the_state_of_its_first_page(place: Place):
    api = place.api
    for name in "abcde":
        await api.post(place.maps, config_map(name, labels={"page": "x"}))
    first = await api.get(place.maps, limit="2", labelSelector="page=x")
    await api.delete(f"{place.maps}/d")
    token = first["metadata"]["continue"]
    second = await api.get(
        place.maps, **{"limit": "2", "labelSelector": "page=x", "continue": token}
    )
    token = second["metadata"]["continue"]
    third = await api.get(
        place.maps, **{"limit": "2", "labelSelector": "page=x", "continue": token}
    )
    pages = [
        [each["metadata"]["name"] for each in page["items"]] for page in (first, second, third)
    ]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    assert "continue" not in third["metadata"]
    revisions = {page["metadata"]["resourceVersion"] for page in (first, second, third)}
    assert len(revisions) == 1


async def test_selectors(place: Place):
    api = place.api
    for name in ("a", "b", "c"):
        await api.post(place.pods, pod(name, labels={"tier": name}))
    await bind(place, "a", "n")

    async def names(**parameters: str) -> list[str]:
        return [each["metadata"]["name"] for each in await api.items(place.pods, **parameters)]

    assert await names(labelSelector="tier in (a,b)") == ["a", "b"]
    assert await names(labelSelector="tier,tier!=a") == ["b", "c"]
    assert await names(fieldSelector="spec.nodeName=n") == ["a"]
    assert await names(fieldSelector="spec.nodeName=,metadata.name!=b") == ["c"]
    assert await names(fieldSelector="status.phase=Pending,spec.schedulerName=other") == []
    assert (await refusal(api.get(place.pods, fieldSelector="spec.colour=red"))).code == 400
    assert (await refusal(api.get(place.pods, labelSelector="a=b=c"))).code == 400


async def test_a_watch_continues_a_list(place: Place):
    api = place.api
    await api.post(place.maps, config_map("a"))
    revision = (await api.get(place.maps))["metadata"]["resourceVersion"]
    await api.post(place.maps, config_map("b"))
    await api.patch(f"{place.maps}/a", {"data": {"k": "2"}})
    await api.delete(f"{place.maps}/b")
    found = await events(place, place.maps, 3, resourceVersion=revision)
    assert told(found) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    revisions = [int(each["object"]["metadata"]["resourceVersion"]) for each in found]
    assert revisions == sorted(set(revisions))
    assert revisions[0] > int(revision)


async def test_a_watch_can_begin_with_a_list(place: Place):
    api = place.api
    for name in ("a", "b"):
        await api.post(place.pods, pod(name))
    found = await events(
        place,
        place.pods,
        3,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    )
    assert sorted(told(found[:2])) == [("ADDED", "a"), ("ADDED", "b")]
    assert found[2]["type"] == "BOOKMARK"
    meta = found[2]["object"]["metadata"]
    assert meta["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(meta["resourceVersion"]) >= int(found[1]["object"]["metadata"]["resourceVersion"])
    error = await refusal(events(place, place.pods, 1, sendInitialEvents="true"))
    assert error.code == 422


async def test_leaving_a_selection_is_a_deletion(place: Place):
    api = place.api
    revision = (await api.get(place.pods))["metadata"]["resourceVersion"]
    await api.post(place.pods, pod("a"))
    await bind(place, "a", "n")
    bound = await api.get(f"{place.pods}/a")
    found = await events(
        place, place.pods, 2, resourceVersion=revision, fieldSelector="spec.nodeName="
    )
    assert told(found) == [("ADDED", "a"), ("DELETED", "a")]
    assert found[1]["object"]["metadata"]["resourceVersion"] == bound["metadata"]["resourceVersion"]
    found = await events(
        place, place.pods, 1, resourceVersion=revision, fieldSelector="spec.nodeName=n"
    )
    assert told(found) == [("ADDED", "a")]


async def test_tables_and_metadata_only(place: Place):
    await serve_widgets(place)
    api = place.api
    await api.post(place.widgets, widget(place, "a", size=7))
    table = json.loads(await api.request("GET", place.widgets, accept=TABLE))
    assert table["kind"] == "Table"
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Size"]
    assert table["rows"][0]["cells"] == ["a", 7]
    assert table["rows"][0]["object"]["metadata"]["name"] == "a"
    await api.post(place.pods, pod("p"))
    table = json.loads(await api.request("GET", place.pods, accept=TABLE))
    columns = [each["name"] for each in table["columnDefinitions"] if each["priority"] == 0]
    assert columns == ["Name", "Ready", "Status", "Restarts", "Age"]
    cells = dict(
        zip(
            (each["name"] for each in table["columnDefinitions"]),
            table["rows"][0]["cells"],
            strict=True,
        )
    )
    assert (cells["Name"], str(cells["Ready"]), cells["Status"]) == ("p", "0/1", "Pending")
    partial = json.loads(await api.request("GET", place.pods, accept=METADATA))
    assert partial["kind"] == "PartialObjectMetadataList"
    assert "spec" not in partial["items"][0]
    assert partial["items"][0]["metadata"]["name"] == "p"
