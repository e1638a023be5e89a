"""An event loop with a virtual clock, a seeded order of tasks, and processes that can be killed.

Time passes only when nothing is left to do: then the clock jumps to the next timer. Every callback
belongs to the process in whose context it was scheduled. A killed process runs nothing more, not
even its ``finally`` blocks to any effect; a frozen one runs again, late, when it is thawed.

Work for threads runs at once, in line; its result arrives after a while, as from a thread.
"""

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import random
import sys
from typing import Any

PROCESS: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)
PRUNED_TASKS = 1000
MAX_CLOSING_AWAITS = 100


class Process:
    """What is killed, frozen and thawed as one; ``start`` runs its first coroutine."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.frozen = False
        self.held: list[_Handle] = []
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)


class _Handle:
    """A callback that is due, in place of ``asyncio.Handle``: most of a simulation is these."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "process")

    def __init__(self, callback, args, context):
        self.callback = callback
        self.args = args
        self.context = contextvars.copy_context() if context is None else context
        self.process = self.context.get(PROCESS)
        self.is_cancelled = False

    def cancel(self):
        self.is_cancelled = True
        # It waits in the heap until its time has come: what it refers to need not.
        self.callback, self.args = None, ()


_NUMBERS = itertools.count()


class _Future(asyncio.Future):
    """Hashes by its number: sets of futures are walked in the same order in every run."""

    def __init__(self, *, loop):
        super().__init__(loop=loop)
        self.number = next(_NUMBERS)

    def __hash__(self):
        return self.number


class _Task(asyncio.Task):
    def __init__(self, coro, *, loop, name, context):
        self.number = next(_NUMBERS)
        super().__init__(coro, loop=loop, name=name or "task", context=context)

    def __hash__(self):
        return self.number


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Runs everything of a simulation; ``after_step`` is called when ``dirty`` was set."""

    def __init__(self, chance: random.Random, *, shuffled: bool, thread_seconds: float = 0.05):
        self.dirty = False
        self.after_step = lambda: None
        self.failures: list[str] = []
        self._chance = chance
        self._shuffled = shuffled
        self._thread_seconds = thread_seconds
        self._now = 0.0
        self._ready: list[_Handle] = []
        self._position = 0
        self._timers: list[tuple[float, int, _Handle]] = []
        self._sequence = itertools.count()
        self._processes: dict[Process, None] = {}
        self._doomed: list[Process] = []
        self._stopped = False

    def time(self):
        return self._now

    def call_soon(self, callback, *args, context=None):
        handle = _Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay, callback, *args, context=None):
        handle = _Handle(callback, args, context)
        when = self._now + delay if delay > 0 else self._now
        heapq.heappush(self._timers, (when, next(self._sequence), handle))
        return handle

    def call_at(self, when, callback, *args, context=None):
        handle = _Handle(callback, args, context)
        heapq.heappush(self._timers, (when, next(self._sequence), handle))
        return handle

    def create_future(self):
        return _Future(loop=self)

    def create_task(self, coro, *, name=None, context=None):
        task = _Task(coro, loop=self, name=name, context=context)
        process = PROCESS.get()
        if process is not None:
            process.tasks[task] = None
            if len(process.tasks) > PRUNED_TASKS:
                process.tasks = {t: None for t in process.tasks if not t.done()}
        return task

    def run_in_executor(self, executor, func, *args):
        future = self.create_future()
        try:
            finish, outcome = future.set_result, func(*args)
        except Exception as error:
            finish, outcome = future.set_exception, error

        def settle():
            if not future.done():
                finish(outcome)

        self.call_later(self._thread_seconds * self._chance.random(), settle)
        return future

    def get_debug(self):
        return False

    def is_running(self):
        return True

    def is_closed(self):
        return False

    def call_exception_handler(self, context):
        self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    def stop(self):
        self._stopped = True

    def start(self, process: Process, coro) -> asyncio.Task[Any]:
        """Start a task of ``process``."""
        self._processes[process] = None
        return process.context.run(self.create_task, coro, name=process.name)

    def kill(self, process: Process) -> None:
        """End a process: nothing of it runs any more, from now on."""
        process.dead = True
        process.held.clear()
        self._doomed.append(process)

    def freeze(self, process: Process) -> None:
        """Let a process run nothing until it is thawed."""
        process.frozen = True

    def thaw(self, process: Process) -> None:
        """Let a frozen process go on: with everything that was due meanwhile, in order."""
        process.frozen = False
        self._ready += process.held
        process.held.clear()

    def run_until(self, end: float) -> None:
        """Run to the time ``end``, or to ``stop``."""
        with self._running():
            while not self._stopped and self._run_next(end):
                pass

    def close(self) -> None:
        """Kill all processes."""
        with self._running():
            for process in tuple(self._processes):
                self.kill(process)
            self._dispose()

    @contextlib.contextmanager
    def _running(self):
        asyncio.events._set_running_loop(self)
        hooks = sys.get_asyncgen_hooks()
        # Generators of dead processes are dropped as they are.
        sys.set_asyncgen_hooks(finalizer=lambda _generator: None)
        try:
            yield
        finally:
            sys.set_asyncgen_hooks(*hooks)
            asyncio.events._set_running_loop(None)

    def _run_next(self, end: float) -> bool:
        if self._doomed:
            self._dispose()
        if not self._ready and not self._advance(end):
            return False
        handle = self._take()
        if handle.is_cancelled:
            return True
        process = handle.process
        if process is not None:
            if process.dead:
                return True
            if process.frozen:
                process.held.append(handle)
                return True
        try:
            handle.context.run(handle.callback, *handle.args)
        except Exception as error:
            self.failures.append(f"{handle.callback}: {error!r}")
            self.dirty = True
        if self.dirty:
            self.dirty = False
            self.after_step()
        return True

    def _advance(self, end: float) -> bool:
        timers, pop = self._timers, heapq.heappop
        while timers and timers[0][2].is_cancelled:
            pop(timers)
        if not timers or timers[0][0] > end:
            self._now = max(self._now, end)
            return False
        now = self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= now:
            self._ready.append(pop(timers)[2])
        return True

    def _take(self) -> _Handle:
        """The next callback: in order, or where shuffled the step of any task that is ready."""
        ready, position = self._ready, self._position
        waiting = len(ready) - position
        if waiting == 1:
            handle = ready[position]
            ready.clear()
            self._position = 0
            return handle
        if self._shuffled and _is_task_step(ready[position]):
            # Callbacks that are no tasks' come first, in order: they are a step's consequences.
            index = position + int(self._chance.random() * waiting)
            if _is_task_step(ready[index]):
                ready[position], ready[index] = ready[index], ready[position]
        self._position += 1
        return ready[position]

    def _dispose(self) -> None:
        """Close the coroutines of dead processes, so that their memory is freed."""
        doomed, self._doomed = self._doomed, []
        for process in doomed:
            for task in process.tasks:
                if not task.done():
                    task._log_destroy_pending = False
                    process.context.run(_close, task.get_coro())
            process.tasks.clear()
            self._processes.pop(process, None)


def _is_task_step(handle: _Handle) -> bool:
    return isinstance(getattr(handle.callback, "__self__", None), asyncio.Task)


def _close(coro) -> None:
    """Throw the coroutine out of each await, until it ends: dead processes wait for nothing."""
    for _ in range(MAX_CLOSING_AWAITS):
        try:
            coro.close()
        except (RuntimeError, asyncio.CancelledError):
            continue
        return
