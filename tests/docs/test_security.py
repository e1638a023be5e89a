"""The page on security lists what the account of the scheduler may write."""

import pytest

from kai_py.deploy.permissions import Right
from kai_py.deploy.policies import OWN_ANNOTATIONS, OWN_CONDITIONS, OWN_POD_STATUS
from tests.support.repository import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()
IN_WORDS = ("jobs", "podgroups")
"""Resources whose annotations the page describes without their keys."""
ANNOTATIONS = [
    key
    for resource, keys in OWN_ANNOTATIONS.items()
    for key in keys
    if resource not in IN_WORDS and not key.startswith("autoscaling.x-k8s.io/")
]


@pytest.mark.parametrize("name", [*ANNOTATIONS, *OWN_POD_STATUS[1:], *OWN_CONDITIONS, *Right])
def test_the_page_names_what_the_account_may_write_and_be_denied(name: str) -> None:
    _, _, stolen = PAGE.partition("## What a stolen token")
    assert f"`{name}`" in stolen
