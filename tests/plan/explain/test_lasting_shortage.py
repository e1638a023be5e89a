"""Too few devices are no reason for good while other devices may become usable."""

from types import SimpleNamespace

import pytest

from kai_py.plan.explain import infeasible


@pytest.mark.parametrize(
    ("claims", "extended", "by_plugins", "reason", "may_change"),
    [
        (False, False, True, "", False),
        (True, False, True, "", True),
        (True, False, True, "no such device", False),
        (False, True, True, "", False),
        (False, True, False, "", True),
        (False, True, False, "no such device", False),
    ],
)
def test_only_devices_that_are_missing_for_good_make_a_gang_infeasible(
    monkeypatch, claims, extended, by_plugins, reason, may_change
):
    monkeypatch.setattr(infeasible, "_is_served_by_plugins", lambda *_: by_plugins)
    shape = SimpleNamespace(claims=("claim",) * claims, needs_devices=claims or extended)
    devices = SimpleNamespace(infeasible_reason=lambda *_: reason)
    state = SimpleNamespace(statement=SimpleNamespace(devices=devices))
    empty = SimpleNamespace(state=state, admitted=lambda _shape: None)
    assert infeasible._may_change(empty, shape) is may_change
