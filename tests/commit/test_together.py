"""Several coroutines at once; none and one cost the event loop nothing."""

import asyncio

import pytest

from kai_py.commit.together import together


async def number(found, *, turns=0):
    for _ in range(turns):
        await asyncio.sleep(0)
    return found


async def failing():
    raise ValueError("no")


async def test_results_come_in_order_whoever_ends_first():
    assert await together([number(1, turns=3), number(2), number(3, turns=1)]) == [1, 2, 3]


@pytest.mark.parametrize("count", [1, 2])
async def test_an_exception_is_raised(count):
    with pytest.raises(ValueError, match="no"):
        await together([failing(), *(number(i) for i in range(count - 1))])


@pytest.mark.parametrize("count", [0, 1])
async def test_none_and_one_need_no_turn_of_the_event_loop(count):
    turned = []
    asyncio.get_running_loop().call_soon(turned.append, True)
    assert await together(number(i) for i in range(count)) == list(range(count))
    assert not turned
