"""The store against a plain dictionary: whatever is written, list + watch replay equals it.

Conditions as a saved cluster has them: halves of them are none.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kai_py.embedded.clock import SIMULATION_START, SimulatedClock
from kai_py.embedded.documents import Identity, condition_states, is_true, with_condition
from kai_py.embedded.errors import RequestError
from kai_py.embedded.listing import Watch
from kai_py.embedded.resources import CONFIG_MAPS
from kai_py.embedded.store import ChangeType, EventLog, Store
from tests.embedded.manifests import config_map
from tests.support.examples import examples

STORAGE = CONFIG_MAPS.storage
NAMES = st.sampled_from(["a", "b", "c"])
COLOURS = st.sampled_from(["red", "blue"])


class Replica:
    """A client that follows a watch and starts over when it is told 410."""

    def __init__(self, store, selects):
        self.store, self.selects = store, selects
        self.objects, self.relists = {}, 0
        self._start()

    def _start(self):
        self.objects = {}
        self.watch = Watch(self.store, CONFIG_MAPS, selects=self.selects)

    def disconnect(self):
        """Come back later with the last revision seen."""
        revision = self.watch.revision
        self.watch = Watch(self.store, CONFIG_MAPS, selects=self.selects, revision=revision)

    def follow(self):
        try:
            events = self.watch.poll()
        except RequestError as error:
            if error.code != 410:
                raise
            self.relists += 1
            self._start()
            events = self.watch.poll()
        for event in events:
            name = event.object["metadata"]["name"]
            if event.type == "ADDED":
                assert name not in self.objects
                self.objects[name] = event.object
            elif event.type == "MODIFIED":
                assert name in self.objects
                self.objects[name] = event.object
            else:
                assert self.selects(self.objects.pop(name))
                assert int(event.object["metadata"]["resourceVersion"]) <= self.store.revision


class StoreMachine(RuleBasedStateMachine):
    """Writes, deletions, compactions and disconnects in any order."""

    @initialize()
    def begin(self):
        self.store = Store(kept_changes=5)
        self.identity = Identity()
        self.model = {}
        self.all = Replica(self.store, lambda _document: True)
        self.red = Replica(self.store, lambda document: document["data"]["colour"] == "red")

    @rule(name=NAMES, colour=COLOURS)
    def put(self, name, colour):
        document = config_map(name, uid=self.identity.uid())
        document["data"] = {"colour": colour}
        present = self.store.get(STORAGE, "default", name)
        if present is None:
            self.store.insert(STORAGE, document)
        else:
            document["metadata"]["uid"] = present["metadata"]["uid"]
            self.store.replace(STORAGE, document, present)
        self.model[name] = colour

    @rule(name=NAMES)
    def delete(self, name):
        present = self.store.get(STORAGE, "default", name)
        if present is not None:
            self.store.remove(STORAGE, present)
            del self.model[name]

    @rule(back=st.integers(0, 3))
    def compact(self, back):
        self.store.compact(max(self.store.revision - back, 0))

    @rule()
    def disconnect(self):
        self.all.disconnect()
        self.red.disconnect()

    @rule()
    def follow(self):
        self.all.follow()
        self.red.follow()
        self._agree()

    def _agree(self):
        listed = {each["metadata"]["name"]: each for each in self.store.list(STORAGE)}
        assert self.all.objects == listed
        red = {name: each for name, each in listed.items() if each["data"]["colour"] == "red"}
        assert {name: each["data"] for name, each in self.red.objects.items()} == {
            name: each["data"] for name, each in red.items()
        }

    @invariant()
    def store_equals_model(self):
        if hasattr(self, "store"):
            listed = self.store.list(STORAGE)
            assert {
                each["metadata"]["name"]: each["data"]["colour"] for each in listed
            } == self.model

    def teardown(self):
        if hasattr(self, "store"):
            self.follow()


TestStoreMachine = pytest.mark.slow(StoreMachine.TestCase)
TestStoreMachine.settings = settings(
    max_examples=examples(200), stateful_step_count=40, deadline=None
)


def put(store, name, uid, **meta):
    return store.insert(STORAGE, config_map(name, uid=uid, **meta))


def test_every_write_gets_the_next_revision_of_one_counter():
    store = Store()
    first = put(store, "a", "1")
    second = store.insert("pods", config_map("b", uid="2"))
    removed = store.remove(STORAGE, first)
    revisions = [int(each["metadata"]["resourceVersion"]) for each in (first, second, removed)]
    assert revisions == [revisions[0], revisions[0] + 1, revisions[0] + 2]
    assert store.revision == revisions[2]


def test_a_name_can_be_taken_once():
    store = Store()
    put(store, "a", "1")
    with pytest.raises(RequestError) as caught:
        put(store, "a", "2")
    assert caught.value.reason == "AlreadyExists"


def test_dependents_follow_the_owner_references():
    store = Store()
    owner = {"apiVersion": "v1", "kind": "X", "name": "o", "uid": "owner"}
    first = put(store, "a", "1", ownerReferences=[owner])
    second = put(store, "b", "2", ownerReferences=[owner])
    store.remove(STORAGE, first)
    assert store.dependents("owner") == [(STORAGE, second)]
    freed = {**second, "metadata": {**second["metadata"], "ownerReferences": []}}
    store.replace(STORAGE, freed, second)
    assert store.dependents("owner") == []


def test_a_quiet_watch_survives_a_compaction_of_other_kinds():
    store = Store()
    put(store, "a", "1")
    watch = Watch(store, CONFIG_MAPS)
    watch.poll()
    for number in range(5):
        store.insert("pods", config_map(f"p{number}", uid=f"p{number}"))
    store.compact()
    put(store, "b", "2")
    assert [event.object["metadata"]["name"] for event in watch.poll()] == ["b"]


def test_a_new_watch_cannot_start_before_the_compaction():
    store = Store()
    put(store, "a", "1")
    start = store.revision
    store.insert("pods", config_map("p", uid="p"))
    store.compact()
    with pytest.raises(RequestError) as caught:
        Watch(store, CONFIG_MAPS, revision=start).poll()
    assert caught.value.code == 410


def test_a_log_is_bounded():
    store = Store(kept_changes=10)
    document = put(store, "a", "1")
    for _ in range(100):
        document = store.replace(STORAGE, dict(document), document)
    log = store.log(STORAGE)
    assert log.compacted_through > 70
    assert len(log.after(store.revision - 5)) == 5


def test_listeners_hear_of_every_append_until_they_stop():
    log, heard = EventLog(), []
    stop = log.listen(lambda: heard.append(1))
    store = Store()
    document = put(store, "a", "1")
    change = store.log(STORAGE).after(0)[0]
    assert (change.type, change.object) == (ChangeType.ADDED, document)
    log.append(change)
    stop()
    log.append(change)
    assert heard == [1]


HALVES = [None, {}, {"type": "Ready"}, {"status": "True"}, {"type": None, "status": "True"}]
READY = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize("half", HALVES)
def test_half_a_condition_is_not_true_and_hides_no_other(half):
    assert not is_true({"status": {"conditions": [half]}}, "Ready")
    document = {"status": {"conditions": [half, READY]}}
    assert is_true(document, "Ready")
    assert ("Ready", "True") in condition_states(document)


@pytest.mark.parametrize("half", HALVES)
def test_a_condition_takes_the_place_of_its_half(half):
    status = with_condition({"conditions": [half]}, READY, now=0.0)
    assert status["conditions"][-1] == {**READY, "lastTransitionTime": "1970-01-01T00:00:00Z"}
    assert len(status["conditions"]) == (1 if half == {"type": "Ready"} else 2)


@pytest.mark.parametrize("status", [None, {}, {"conditions": None}, {"conditions": []}])
def test_without_conditions_none_is_true(status):
    assert not is_true({"status": status}, "Ready")


def test_timers_run_in_order_of_time_then_of_registration():
    clock, seen = SimulatedClock(), []
    for name, delay in (("late", 5), ("first", 1), ("second", 1)):
        clock.call_later(delay, lambda name=name: seen.append((name, clock.now())))
    clock.advance(10)
    start = SIMULATION_START
    assert seen == [("first", start + 1), ("second", start + 1), ("late", start + 5)]
    assert clock.now() == start + 10


def test_a_timer_may_set_a_timer_that_is_due_in_the_same_advance():
    clock, seen = SimulatedClock(), []
    clock.call_later(1, lambda: clock.call_later(1, lambda: seen.append(clock.now())))
    clock.advance(2)
    assert seen == [SIMULATION_START + 2]


def test_a_cancelled_timer_does_not_run():
    clock, seen = SimulatedClock(), []
    clock.call_later(1, lambda: seen.append("cancelled")).cancel()
    clock.advance(2)
    assert seen == []
    assert clock.next_due() is None
