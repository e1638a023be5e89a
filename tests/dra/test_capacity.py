"""What a request takes of a capacity: by the rules, one amount after the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.quantity import NANO, QuantityError
from kai_py.api.records.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    DeviceCapacity,
)
from kai_py.dra.capacity import consumed_capacity, format_amount, parse_capacity
from kai_py.dra.identity import AllocationError


def capacity(value, **policy):
    """A capacity as a driver publishes it, parsed."""
    return parse_capacity("memory", published_capacity(value, **policy))


def published_capacity(value, *, default=None, valid=(), least=None, most=None, step=None):
    bounds = None
    if least is not None or most is not None or step is not None:
        bounds = CapacityRequestPolicyRange(min=least, max=most, step=step)
    policy = CapacityRequestPolicy(default=default, valid_values=tuple(valid), valid_range=bounds)
    return DeviceCapacity(value=value, request_policy=policy)


def taken(found, requested=None, *, fractional=True):
    """In nano-units; None if the request is rejected."""
    requests = {} if requested is None else {"memory": requested}
    amounts = consumed_capacity((found,), requests, fractional=fractional)
    return None if amounts is None else dict(amounts)["memory"]


few = st.integers(0, 12)
perhaps = st.none() | few


def by_trying(value, requested, default, valid, bounds):
    """The smallest amount that the policy allows and that is enough, in whole units."""
    if requested is None:
        amount = value if default is None else default
    elif bounds is not None:
        least, _, step = bounds
        amount = least
        while amount < requested:
            amount += step or 1
    else:
        amount = min((each for each in valid if each >= requested), default=requested)
    if amount > value:
        return None
    if amount == default:
        return amount
    if bounds is not None:
        least, most, step = bounds
        steps = {least + number * step for number in range(-12, 13)} if step else {amount}
        if (most is not None and amount > most) or amount not in steps:
            return None
    elif valid and amount not in valid:
        return None
    return amount


@given(
    few,
    perhaps,
    perhaps,
    st.lists(few, max_size=3),
    st.none() | st.tuples(st.integers(0, 4), perhaps, st.none() | st.integers(1, 4)),
)
def test_what_is_taken_is_the_least_that_the_policy_allows(
    value, requested, default, valid, bounds
):
    least, most, step = bounds or (None, None, None)
    found = capacity(value, default=default, valid=valid, least=least, most=most, step=step)
    nano = None if requested is None else requested * NANO
    expected = by_trying(value, requested, default, valid, bounds)
    assert taken(found, nano) == (None if expected is None else expected * NANO)
    assert found.restricts == (default is not None or bounds is not None or bool(valid))


def test_all_requested_capacities_must_exist_and_suffice():
    two = (capacity(4), parse_capacity("cores", DeviceCapacity(value=2)))
    ask = {"cores": 1 * NANO}
    assert consumed_capacity(two, ask, fractional=False) == (
        ("memory", 4 * NANO),
        ("cores", 1 * NANO),
    )
    assert consumed_capacity(two, ask | {"memory": 5 * NANO}, fractional=False) is None
    assert consumed_capacity(two, ask | {"Memory": 1}, fractional=False) is None
    assert consumed_capacity(two, {"cores": 3 * NANO}, fractional=False) is None


@pytest.mark.parametrize(
    ("least", "most", "step", "requested", "fractional", "amount"),
    [
        # Thousandths where all of the range can be written in them.
        ("500m", "2", "500m", "700m", True, "1"),
        ("500m", "2", "500m", "1001m", True, "1500m"),
        ("500m", "2", "500m", "700m", False, "1"),
        ("1", "4", "1", "1100m", True, "2"),
        ("1", "4", "500m", "1100m", True, "1500m"),
        ("1", "1500m", "1", "1100m", True, None),
        ("500u", "2", "1", "1", True, "1"),
        ("500m", "4", "1", "700m", True, "1500m"),
        ("0", "4", "1", "1u", False, "1"),
        ("0", "9300P", "1", "9200P", True, None),
    ],
)
def test_steps_are_counted_in_units_that_the_range_has(
    least, most, step, requested, fractional, amount
):
    found = capacity("4", least=least, most=most, step=step)
    nano = parse_capacity("x", DeviceCapacity(value=requested)).value
    expected = parse_capacity("x", DeviceCapacity(value=amount)).value if amount else None
    assert taken(found, nano, fractional=fractional) == expected


@pytest.mark.parametrize(
    ("least", "step", "requested", "fractional", "error"),
    [
        (0, 1, 2**63 - 1, False, None),
        (0, 1, 2**63, False, "request 9223372036854775808 exceeds MaxInt64"),
        (0, 2, 2**63 - 1, False, "up to the next step passes MaxInt64"),
        (0, 1, 2**63 // 1000, True, None),
        (0, 1, 2**63 // 1000 + 1, True, "is not a representable milli value"),
        (0, 1, 1e-6, True, "request 1u is not a representable milli value"),
        (0, 2, 2**63 // 1000, True, "up to the next step passes the milli-value range"),
        (2**60, 1, 2**63 - 1, True, None),  # the range itself has no thousandths
        (0, None, 2**63, True, None),
        (0, 1, -1, True, None),
        (-2, None, -1, True, "capacity value is negative"),
    ],
)
def test_amounts_that_the_api_cannot_compute_with_are_errors(
    least, step, requested, fractional, error
):
    found = capacity(2**64, least=least, step=step)
    nano = round(requested * NANO)
    if error is None:
        assert taken(found, nano, fractional=fractional) == max(nano, 0)
        return
    with pytest.raises(AllocationError, match=error):
        taken(found, nano, fractional=fractional)


def test_a_whole_device_is_compared_with_its_range_in_thousandths():
    found = capacity("1500m", least="0", step="1")
    assert taken(found, fractional=True) is None
    assert taken(found, fractional=False) == 1500 * NANO // 1000


def test_a_negative_amount_is_an_error_whoever_gives_it():
    with pytest.raises(AllocationError, match='"memory": capacity value is negative'):
        taken(capacity(4), -NANO)
    with pytest.raises(AllocationError):
        taken(capacity(4, default=-1))
    with pytest.raises(QuantityError):
        capacity("many")


@pytest.mark.parametrize(
    ("fields", "bounds"),
    [
        ({}, None),
        ({"most": 4}, None),  # a range needs a minimum
        ({"least": 1}, (1, None, None)),
        ({"least": 0, "most": 4, "step": 2}, (0, 4, 2)),
        ({"least": 1, "step": 0}, (1, None, None)),
        ({"least": 1, "step": -1}, (1, None, None)),
    ],
)
def test_a_range_is_read_as_it_is_written(fields, bounds):
    found = capacity(8, **fields).range
    read = found and (found.min, found.max, found.step)
    assert read == (bounds and tuple(each and each * NANO for each in bounds))


@pytest.mark.parametrize(
    ("requested", "fields", "text"),
    [
        (None, {}, "1953125Ki"),
        (None, {"default": "2G"}, "2G"),
        ("2G", {}, "2G"),
        ("2G", {"default": "1Gi"}, "2G"),
        ("2G", {"default": "1Gi", "least": "1Gi"}, "2G"),
        ("1G", {"least": "1953125Ki", "step": "1G"}, "1953125Ki"),
        ("1900M", {"least": "0", "step": "1953125Ki"}, "1953125Ki"),
        ("1900Mi", {"least": "0", "step": "1G"}, "2G"),
        ("1900M", {"valid": ["1Gi", "1953125Ki"]}, "1953125Ki"),
        ("2e9", {"valid": ["1Gi"]}, "2e9"),
    ],
)
def test_amounts_are_written_like_what_they_are_taken_from(requested, fields, text):
    published = published_capacity("1953125Ki", **fields)
    assert format_amount(published, requested, 2 * 10**9 * NANO) == text


@pytest.mark.parametrize(
    ("requested", "amount"), [(None, 3), (1, 2), (2, 2), (3, 4), (4, 4), (5, None)]
)
def test_of_amounts_beside_the_valid_values_only_the_default_is_allowed(requested, amount):
    found = capacity(8, default=3, valid=(2, 4))
    expected = None if amount is None else amount * NANO
    assert taken(found, None if requested is None else requested * NANO) == expected
