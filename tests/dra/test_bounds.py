"""The bounds that prove a search infeasible, compared with Hall's theorem and with packing."""

from itertools import combinations, product
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from kai_py.dra.bounds import MAX_PARTS, _do_not_fit, _has_full_flow, _possible_options

demands = st.lists(st.integers(0, 3), max_size=4)


@given(demands, st.dictionaries(st.integers(0, 15), st.integers(0, 4), max_size=6))
def test_requests_get_their_devices_if_any_of_them_together_have_enough(demand, supply):
    """Hall's theorem; ``supply``: devices by the bits of the requests that may have them."""
    together = True
    for size in range(1, len(demand) + 1):
        for requests in combinations(range(len(demand)), size):
            needed = sum(demand[each] for each in requests)
            mask = sum(1 << each for each in requests)
            usable = sum(count for bits, count in supply.items() if bits & mask)
            together = together and needed <= usable
    assert _has_full_flow(demand, supply) is together


sizes = st.lists(st.integers(1, 6), max_size=4)


@given(sizes, st.lists(st.integers(0, 8), max_size=3))
def test_shares_that_can_be_packed_are_never_ruled_out(amounts, left):
    can_be_packed = any(
        all(
            sum(amount for amount, at in zip(amounts, chosen, strict=True) if at == device) <= has
            for device, has in enumerate(left)
        )
        for chosen in product(range(len(left)), repeat=len(amounts))
    )
    if can_be_packed:
        assert not _do_not_fit(amounts, left)
    if sum(amounts) > sum(left):
        assert _do_not_fit(amounts, left)


def test_no_more_large_shares_fit_than_there_are_parts():
    for parts in range(1, MAX_PARTS + 1):
        whole = parts * (parts + 1)
        slightly_larger = whole // (parts + 1) + 1
        assert _do_not_fit([slightly_larger] * (2 * parts + 1), [whole, whole, 9 * whole][:2])
        assert not _do_not_fit([slightly_larger] * (2 * parts), [whole, whole])
        assert not _do_not_fit([slightly_larger - 1] * (2 * parts + 1), [whole, whole])


def test_an_option_is_possible_with_enough_devices_and_all_devices_are_at_least_one():
    cases = [
        # Devices that are eligible, that are needed, whether it is for all, whether it is possible.
        (2, 2, False, True),
        (1, 2, False, False),
        (2, 2, True, True),
        (1, 2, True, False),
        (0, 0, True, False),
    ]
    eligible = [frozenset(range(devices)) for devices, *_ in cases]
    problem = SimpleNamespace(counts=[count for _, count, _, _ in cases])
    options = [SimpleNamespace(position=n, is_all_mode=case[2]) for n, case in enumerate(cases)]
    found = _possible_options(problem, options, eligible)
    assert [each in found for each in options] == [possible for *_, possible in cases]
