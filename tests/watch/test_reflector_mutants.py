"""Do the scenarios bite? Each known way to get a reflector wrong must fail one of them."""

import msgspec
import pytest

from kai_py.watch import reflector
from kai_py.watch.collection import Collection, entry_key, entry_version
from kai_py.watch.reflector import Reflector
from kai_py.watch.wire import ListMetadata, decode_page
from tests.watch import scenarios
from tests.watch.staging import play


def additions_for_modifications(patch):
    def put(self, key, entry):
        self.objects[key] = entry
        self._on_change(self.kind, None, entry)

    patch.setattr(Collection, "_put", put)


def continue_token_dropped(patch):
    def without_token(body, call):
        page = decode_page(body, call)
        metadata = ListMetadata(resource_version=page.metadata.resource_version)
        return msgspec.structs.replace(page, metadata=metadata)

    patch.setattr(reflector, "decode_page", without_token)


def deletions_in_a_gap_missed(patch):
    def replacing(self, entries):
        yield from map(self.put, entries.values())

    patch.setattr(Collection, "replacing", replacing)


def version_taken_in_mid_initial_events(patch):
    def advance(self, version):
        self.version = version

    patch.setattr(Reflector, "_advance", advance)


def half_initial_stream_believed(patch):
    def take(self, call, event):
        entry = self._collection.read(self.resource.decode, event.object)
        self._initial_entries[entry_key(entry)] = entry
        self._collection.put(entry)
        self._advance(entry_version(entry))

    patch.setattr(Reflector, "_handle_object", take)


def gone_keeps_the_version(patch):
    def note(self, error):
        self.problem = str(error)

    patch.setattr(Reflector, "_on_error", note)


def uid_ignored(patch):
    def put(self, key, entry):
        old = self.objects.get(key)
        self.objects[key] = entry
        if old is None or entry_version(old) != entry_version(entry):
            self._on_change(self.kind, old, entry)

    patch.setattr(Collection, "_put", put)


def no_backoff(patch):
    patch.setattr(Reflector, "_delay", lambda self, *, lived: 0.01)


def no_backoff_after_a_clean_end(patch):
    def delay(self, *, lived):
        return self._backoff.next() if self.problem else 0.01

    patch.setattr(Reflector, "_delay", delay)


def retry_after_ignored(patch):
    note = Reflector._on_error

    def forget(self, error):
        note(self, error)
        error.retry_after = 0.0

    patch.setattr(Reflector, "_on_error", forget)


def bookmarks_ignored(patch):
    def take(self, call, raw):
        return None if self._initial_entries is None else known(self, call, raw)

    known = Reflector._handle_bookmark
    patch.setattr(Reflector, "_handle_bookmark", take)


def error_event_resumes(patch):
    def take(self, call, line):
        version = self.version
        try:
            return known(self, call, line)
        finally:
            self.version = self.version or version

    known = Reflector._handle_line
    patch.setattr(Reflector, "_handle_line", take)


@pytest.mark.parametrize(
    ("mutant", "scenario"),
    [
        (additions_for_modifications, scenarios.changes_in_the_gap),
        (deletions_in_a_gap_missed, scenarios.deletion_in_the_gap),
        (version_taken_in_mid_initial_events, scenarios.cut_in_mid_initial_events),
        (half_initial_stream_believed, scenarios.cut_in_mid_initial_events),
        (gone_keeps_the_version, scenarios.deletion_in_the_gap),
        (uid_ignored, scenarios.recreation_in_the_gap),
        (no_backoff, scenarios.server_errors),
        (no_backoff_after_a_clean_end, scenarios.immediate_closes),
        (retry_after_ignored, scenarios.too_many_requests),
        (bookmarks_ignored, scenarios.bookmark_outlives_compaction),
        (error_event_resumes, scenarios.error_event),
        (gone_keeps_the_version, scenarios.garbage_line),
    ],
)
def test_mutant_dies(mutant, scenario, monkeypatch):
    play(scenario)
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        play(scenario)


def test_dropped_continue_token_dies(monkeypatch):
    monkeypatch.setattr(reflector, "PAGE_SIZE", 3)
    continue_token_dropped(monkeypatch)
    with pytest.raises(AssertionError):
        play(scenarios.paged_list, initial_events="refused")
