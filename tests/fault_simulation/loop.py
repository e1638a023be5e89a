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


class _Handle(asyncio.Handle):
    __slots__ = ("process",)

    def __init__(self, callback, args, loop, context):
        super().__init__(callback, args, loop, context)
        self.process = self._context.get(PROCESS)


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ("process",)

    def __init__(self, when, callback, args, loop, context):
        super().__init__(when, callback, args, loop, context)
        self.process = self._context.get(PROCESS)


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
        self.steps = 0
        self._chance = chance
        self._shuffled = shuffled
        self._thread_seconds = thread_seconds
        self._now = 0.0
        self._ready: list[_Handle | _TimerHandle] = []
        self._position = 0
        self._timers: list[tuple[float, int, _TimerHandle]] = []
        self._sequence = itertools.count()
        self._processes: dict[Process, None] = {}
        self._doomed: list[Process] = []
        self._stopped = False

    def time(self):
        return self._now

    def call_soon(self, callback, *args, context=None):
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay, callback, *args, context=None):
        return self.call_at(self._now + max(delay, 0.0), callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        handle = _TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._sequence), handle))
        return handle

    def _timer_handle_cancelled(self, handle):
        pass

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
        if handle._cancelled:
            return True
        process = handle.process
        if process is not None:
            if process.dead:
                return True
            if process.frozen:
                process.held.append(handle)
                return True
        self.steps += 1
        handle._run()
        if self.dirty:
            self.dirty = False
            self.after_step()
        return True

    def _advance(self, end: float) -> bool:
        while self._timers and self._timers[0][2]._cancelled:
            heapq.heappop(self._timers)
        if not self._timers or self._timers[0][0] > end:
            self._now = max(self._now, end)
            return False
        self._now = max(self._now, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(self._timers)[2])
        return True

    def _take(self) -> _Handle | _TimerHandle:
        """The next callback: in order, or where shuffled the step of any task that is ready."""
        ready = self._ready
        if self._shuffled and len(ready) - self._position > 1:
            index = self._position
            # Callbacks that are no tasks' come first, in order: they are a step's consequences.
            if _is_task_step(ready[index]):
                index += int(self._chance.random() * (len(ready) - index))
                if not _is_task_step(ready[index]):
                    index = self._position
            ready[self._position], ready[index] = ready[index], ready[self._position]
        handle = ready[self._position]
        self._position += 1
        if self._position >= len(ready):
            ready.clear()
            self._position = 0
        return handle

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


def _is_task_step(handle: asyncio.Handle) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)


def _close(coro) -> None:
    """Throw the coroutine out of each await, until it ends: dead processes wait for nothing."""
    for _ in range(MAX_CLOSING_AWAITS):
        try:
            coro.close()
        except (RuntimeError, asyncio.CancelledError):
            continue
        return
