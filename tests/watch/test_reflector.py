"""The fault table: what the reflector makes of every way in which a server can fail it."""

import asyncio

import pytest

from kai_py.watch import reflector
from kai_py.watch.collection import Collection
from kai_py.watch.credentials import Anonymous
from kai_py.watch.errors import NotFound
from kai_py.watch.http_transport import HttpTransport
from kai_py.watch.kinds import owner_kind
from kai_py.watch.reflector import Reflector
from tests.watch import scenarios, virtual_time
from tests.watch.collection_server import failure, serve, status_response
from tests.watch.staging import in_memory, over_http, play

EVERYWHERE = pytest.mark.parametrize("staged", [in_memory, over_http])


@EVERYWHERE
@pytest.mark.parametrize(
    "scenario",
    [
        scenarios.deletion_in_the_gap,
        scenarios.recreation_in_the_gap,
        scenarios.changes_in_the_gap,
        scenarios.server_errors,
        scenarios.too_many_requests,
        scenarios.long_retry_after,
        scenarios.immediate_closes,
        scenarios.cut_in_mid_initial_events,
        scenarios.initial_events_never_end,
        scenarios.cut_in_mid_line,
        scenarios.bookmark_outlives_compaction,
        scenarios.error_event,
        scenarios.garbage_line,
        scenarios.line_without_end,
        scenarios.undecodable_object,
        scenarios.nameless_object,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_fault(scenario, staged):
    play(scenario, staged=staged)


@EVERYWHERE
def test_expiry_told_as_an_event(staged):
    play(scenarios.deletion_in_the_gap, staged=staged, gone_as_event=True)


@EVERYWHERE
@pytest.mark.parametrize("scenario", [scenarios.paged_list, scenarios.page_token_expires])
def test_pages(scenario, staged, monkeypatch):
    monkeypatch.setattr(reflector, "PAGE_SIZE", 3)
    play(scenario, staged=staged, initial_events="refused")


@EVERYWHERE
@pytest.mark.parametrize("behaviour", ["refused", "ignored"])
def test_server_without_initial_events(behaviour, staged):
    play(scenarios.initial_events_not_served, staged=staged, initial_events=behaviour)


def test_dead_peer_is_noticed_by_its_silence(caplog):
    play(scenarios.silence, staged=over_http)
    [said] = [each.message for each in caplog.records if each.name == reflector.__name__]
    assert said == "watching Thing: silent for 75 s though 1 objects changed; listed instead"


def test_a_watch_without_bookmarks_of_what_does_not_change_is_no_fault(caplog):
    """What etcd does not tell the API server of, no bookmark tells us: each silence is a list."""

    async def scenario(stage):
        await scenarios.synced(stage, "a", "b")
        await asyncio.sleep(400)
        assert stage.server.count("list") == 5
        assert stage.reflector.problem == ""
        stage.assert_equal()

    play(scenario)
    assert caplog.messages == []


def test_a_quiet_kind_is_listed_at_once_after_each_silence_however_short():
    """Its watches end before they count as steady: that is no reason to wait for ever longer."""

    async def scenario(stage):
        stage.reflector._silence = 1.7
        await scenarios.synced(stage, "a")
        for _ in range(600):
            await asyncio.sleep(0.1)
            loop = asyncio.get_running_loop()
            assert loop.time() - stage.reflector.last_progress < 2.0
        assert stage.server.count("list") > 25

    play(scenario)


@pytest.mark.parametrize("seconds", [4, 20, 45, 60])
def test_a_quiet_kind_is_listed_though_no_stream_is_silent_for_long(seconds):
    """A proxy closes connections on which nothing comes, before a bookmark would."""

    async def scenario(stage):
        await scenarios.synced(stage, "a")
        loop = asyncio.get_running_loop()
        for _ in range(1200 // seconds):
            for _ in range(seconds):
                await asyncio.sleep(1)
                assert loop.time() - stage.reflector.last_progress < 90
            stage.server.cut()
        assert stage.server.count("list") <= 1200 / 75

    play(scenario)


def test_steady_stream_reconnects_at_once():
    async def scenario(stage):
        await scenarios.synced(stage, "a")
        for _ in range(5):
            await asyncio.sleep(reflector.STABLE_SECONDS + 1)
            stage.server.cut()
            await asyncio.sleep(0.01)
            assert len(stage.server.streams) == 1

    play(scenario)


def test_busy_stream_that_is_cut_often_is_not_slowed_down():
    async def scenario(stage):
        await scenarios.synced(stage, "a")
        for size in range(1, 20):
            stage.server.put("a", size=size)
            await asyncio.sleep(0.05)
            stage.server.cut()
            await asyncio.sleep(0.5)
            stage.assert_equal()

    play(scenario)


def test_collection_that_is_gone_ends_the_reflector():
    async def scenario(stage):
        await scenarios.synced(stage, "a")
        stage.server.missing = True
        stage.server.cut()
        with pytest.raises(NotFound):
            await asyncio.wait_for(stage.task, 60)
        assert [name for _, name in stage.collection.objects] == ["a"]

    play(scenario)


def test_last_contact_follows_the_server():
    async def scenario(stage):
        loop = asyncio.get_running_loop()
        await scenarios.synced(stage, "a")
        await asyncio.sleep(50)
        assert loop.time() - stage.reflector.last_contact == pytest.approx(51, abs=0.1)
        stage.server.bookmark()
        await asyncio.sleep(2)
        assert loop.time() - stage.reflector.last_contact == pytest.approx(2, abs=0.1)

    play(scenario)


def test_metadata_only_is_asked_for_by_the_accept_header():
    async def main():
        asked = []

        async def handle(request):
            asked.append((dict(request.query), request.headers["Accept"]))
            return status_response(failure(422 if "watch" in request.query else 403))

        async with serve(handle) as url, HttpTransport(Anonymous(url)) as transport:
            resource = owner_kind("Thing", "things", "v1", group="example.com").at()
            collection = Collection(resource.kind, lambda kind, old, new: None)
            run = asyncio.ensure_future(Reflector(transport, resource, collection).run())
            await asyncio.sleep(0.1)
            run.cancel()
        (_, watch), (_, listing) = asked[:2]
        partial = "application/json;as={};g=meta.k8s.io;v=v1,application/json"
        assert watch == partial.format("PartialObjectMetadata")
        assert listing == partial.format("PartialObjectMetadataList")

    virtual_time.run(main(), grace=0.002)
