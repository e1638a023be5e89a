"""Which constraint of claims keeps them from their devices, and what a rejected device lacks."""

from types import SimpleNamespace

import pytest

from kai_py.api.records.resource import ResourceClaim
from kai_py.dra.eligibility import DeviceCheck, DeviceRejection
from kai_py.dra.explain import rejections
from kai_py.dra.explain.rejections import rejection_of, unmet_constraints
from kai_py.dra.selectors.columns import HAS
from tests.support.records import from_json


def claim(*attributes):
    constraints = [{"matchAttribute": each} for each in attributes]
    return from_json(ResourceClaim, {"spec": {"devices": {"constraints": constraints}}})


@pytest.mark.parametrize(
    ("claims", "unmet", "told"),
    [
        (["a"], ["a"], ["a"]),
        (["a", "b"], ["b"], ["b"]),
        (["ab", "c"], ["c"], ["c"]),
        (["ab"], ["a", "b"], ["a", "b"]),
        (["ab"], ["a b", "other"], []),
        ([""], [], []),
    ],
)
def test_the_constraint_is_named_without_which_the_claims_are_feasible(claims, unmet, told):
    """``unmet``: attributes, of which no claim may require any; "other": nothing is feasible."""

    def is_feasible(given):
        left = [each.match_attribute for one in given for each in one.spec.devices.constraints]
        return "other" not in unmet and not set(left) & set(unmet)

    found = unmet_constraints([claim(*each) for each in claims], is_feasible)
    assert [each.match_attribute for each in found] == told


@pytest.mark.parametrize(
    ("check", "detail", "requested", "said"),
    [
        (DeviceCheck.CAPACITY, "", {}, "of memory"),
        (DeviceCheck.CAPACITY_LEFT, "memory", {"memory": 1}, "of memory"),
        (
            DeviceCheck.CAPACITY_LEFT,
            "memory",
            {},
            "of memory (none is requested, so a share takes the default, or all)",
        ),
        (DeviceCheck.CONSTRAINT, "", {}, "an attribute"),
        (DeviceCheck.TAINT, "a taint", {}, "a taint"),
    ],
)
@pytest.mark.parametrize("by_itself", [True, False])
def test_a_rejection_says_what_the_device_lacks(
    monkeypatch, check, detail, requested, said, by_itself
):
    monkeypatch.setattr(rejections, "_small_capacity", lambda *_: "of memory")
    monkeypatch.setattr(rejections, "_missing_attribute", lambda *_: "an attribute")
    rejected = DeviceRejection(check, detail)
    checked = rejected if by_itself else "eligible"
    state = SimpleNamespace(
        eligibility=SimpleNamespace(check=lambda *_: checked),
        rejection=lambda *_: DeviceRejection(DeviceCheck.IN_USE) if by_itself else rejected,
    )
    option = SimpleNamespace(capacity=requested)
    assert rejection_of(state, option, 0) == DeviceRejection(check, said)
    free = SimpleNamespace(
        eligibility=SimpleNamespace(check=lambda *_: "eligible"), rejection=lambda *_: None
    )
    assert rejection_of(free, option, 0) is None


FIELDS = {"driver": "d", "attributes": {"d": {"model": "m"}}, "capacity": {"d": {"memory": 4}}}


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (("driver",), ("driver", '"d"')),
        (("attributes", "d", "model"), ("d/model", '"m"')),
        (("attributes", "d", "other"), ("d/other", "missing")),
        (("attributes", "e", "model"), ("e/model", "missing")),
        (("capacity", "d", "memory"), ("d/memory", "4")),
        ((HAS, "attributes", "d", "model"), ("d/model", '"m"')),
        (("attributes",), ("attributes", str(FIELDS["attributes"]))),
    ],
)
def test_the_value_that_a_condition_reads_has_the_name_that_its_slice_gives_it(column, said):
    device = SimpleNamespace(cel=SimpleNamespace(fields=FIELDS))
    assert rejections._value(device, column) == said
