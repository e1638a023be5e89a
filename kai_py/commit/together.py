"""Waiting for several coroutines at once, at no cost where there are none or only one.

Most gangs have one pod and no claim. ``asyncio.gather`` makes a task of each coroutine and lets the
event loop turn once more even for none, which a thousand bindings a second feel.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def together(work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """The results of ``work`` in its order; raises its first exception."""
    coroutines = list(work)
    if len(coroutines) > 1:
        return await asyncio.gather(*coroutines)
    return [await each for each in coroutines]
