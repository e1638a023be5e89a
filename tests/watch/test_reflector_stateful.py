"""Whatever happens in whatever order: collection == server == everything that was told of it."""

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kai_py.watch import reflector
from tests.support.examples import examples
from tests.watch.collection_server import CollectionServer, Fault, MemoryTransport
from tests.watch.staging import Stage
from tests.watch.virtual_time import VirtualTimeLoop

NAMES = st.sampled_from("abcdef")
VERBS = st.sampled_from(["list", "watch"])


class ReflectorMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.stage = None
        self.page_size = reflector.PAGE_SIZE
        reflector.PAGE_SIZE = 2

    def teardown(self):
        reflector.PAGE_SIZE = self.page_size
        if self.stage is not None:
            self.stage.task.cancel()
            self.loop.run_until_complete(asyncio.wait((self.stage.task,)))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    @precondition(lambda self: self.stage is None)
    @rule(
        initial_events=st.sampled_from(["served", "refused", "ignored"]),
        gone_as_event=st.booleans(),
        names=st.sets(NAMES),
    )
    def start(self, initial_events, gone_as_event, names):
        server = CollectionServer(initial_events=initial_events, gone_as_event=gone_as_event)
        for name in sorted(names):
            server.put(name)

        async def make():
            return Stage(server, MemoryTransport(server))

        self.stage = self.loop.run_until_complete(make())

    @precondition(lambda self: self.stage)
    @rule(name=NAMES, size=st.integers(1, 9))
    def put(self, name, size):
        self.stage.server.put(name, size=size)

    @precondition(lambda self: self.stage and self.stage.server.objects)
    @rule(data=st.data(), again=st.booleans())
    def delete(self, data, again):
        name = data.draw(st.sampled_from(sorted(self.stage.server.objects)))
        if again:
            self.stage.server.recreate(name)
        else:
            self.stage.server.delete(name)

    @precondition(lambda self: self.stage)
    @rule()
    def disconnect(self):
        self.stage.server.cut()

    @precondition(lambda self: self.stage)
    @rule()
    def compact(self):
        self.stage.server.compact()

    @precondition(lambda self: self.stage and self.stage.server.objects)
    @rule(data=st.data(), again=st.booleans())
    def lose_a_deletion(self, data, again):
        """Disconnect, delete and compact: the deletion can only be seen by comparing."""
        self.disconnect()
        self.delete(data, again)
        self.compact()

    @precondition(lambda self: self.stage)
    @rule()
    def bookmark(self):
        self.stage.server.bookmark()

    @precondition(lambda self: self.stage)
    @rule(raw=st.sampled_from([b"garbage\n", b'{"type":"ERROR","object":{"code":500}}\n']))
    def corrupt(self, raw):
        self.stage.server.send(raw)

    @precondition(lambda self: self.stage)
    @rule(lines=st.integers(0, 4), clean=st.booleans(), half_line=st.booleans())
    def cut_next_stream(self, lines, clean, half_line):
        fault = Fault(lines=lines, clean=clean, half_line=half_line)
        self.stage.server.fail("watch", fault)

    @precondition(lambda self: self.stage)
    @rule(verb=VERBS, code=st.sampled_from([410, 429, 500, 503]))
    def fail_next(self, verb, code):
        self.stage.server.fail(verb, Fault(code=code, retry_after=1.0 if code == 429 else 0.0))

    @precondition(lambda self: self.stage)
    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 20.0]))
    def wait(self, seconds):
        self.loop.run_until_complete(asyncio.sleep(seconds))

    @precondition(lambda self: self.stage)
    @rule()
    def settle(self):
        self.stage.server.calm()
        self.loop.run_until_complete(self.stage.settle(120))
        self.stage.assert_equal()

    @invariant()
    def known_state_is_a_true_one(self):
        if self.stage is not None:
            assert not self.stage.task.done()
            assert self.stage.replayed == self.stage.collection.objects
            self.stage.assert_at_version()


TestReflector = ReflectorMachine.TestCase
TestReflector.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
