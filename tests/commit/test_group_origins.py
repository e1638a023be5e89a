"""The manager that wrote its allocation decides whether a claim without pods is ours."""

import json
import logging

import pytest

from kai_py.api.references import ClaimRef
from kai_py.commit.api_access import ApiAccess, CallLimit
from kai_py.commit.claims.recovery import CLAIMS_WITH_MANAGERS, GroupOwnership
from kai_py.commit.retry import ObjectBackoff, RetryPolicy
from kai_py.watch.errors import ApiError, NotFound
from kai_py.watch.kinds import PODS, RESOURCE_CLAIMS

CLAIM = ClaimRef("default", "gpu", "claim-uid")


class Groups:
    def __init__(self, *groups):
        self.groups = frozenset(groups)
        self.owned = []

    def unknown_groups(self):
        left = self.groups - {name for _, name in self.owned}
        return {CLAIM: left} if left else {}

    def adopt_group(self, namespace, name):
        self.owned.append((namespace, name))


class Claims:
    """Answers every read of a claim with the next of these."""

    def __init__(self, *answers):
        self.answers = list(answers)

    async def get(self, resource, name, *, namespace):
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer


def written(manager, *fields):
    entry = {
        "manager": manager,
        "operation": "Update",
        "subresource": "status",
        "fieldsV1": {"f:status": {f"f:{field}": {} for field in fields}},
    }
    metadata = {"name": "gpu", "namespace": "default", "uid": "claim-uid"}
    found = {"metadata": metadata | {"managedFields": [{"manager": "kubectl"}, entry]}}
    return CLAIMS_WITH_MANAGERS.at().decode(json.dumps(found).encode())


def origins(groups, *answers, wait=0.0):
    claims = Claims(*answers)
    limiter, pause = CallLimit(1), RetryPolicy()
    access = ApiAccess(claims, PODS.at(), RESOURCE_CLAIMS.at, limiter, pause, pause)
    return GroupOwnership(access, groups, ObjectBackoff(RetryPolicy(base=wait))), claims


async def test_a_group_is_ours_if_we_allocated_its_claim():
    groups = Groups("train")
    looking, _ = origins(groups, written("kai-py", "allocation", "reservedFor"))
    await looking.refresh()
    assert groups.owned == [("default", "train")]


@pytest.mark.parametrize(
    "found",
    [
        written("kube-scheduler", "allocation"),
        written("kai-py", "devices"),
        NotFound("gone", reason="NotFound", name="gpu"),
    ],
    ids=["another manager's", "we wrote another field", "gone"],
)
async def test_others_are_not_and_are_read_once(found):
    groups = Groups("train")
    looking, claims = origins(groups, found)
    for _ in range(3):
        await looking.refresh()
    assert (groups.owned, claims.answers) == ([], [])


async def test_a_claim_that_cannot_be_read_is_read_again(caplog):
    groups = Groups("train")
    looking, _ = origins(groups, ApiError("refused"), written("kai-py", "allocation"))
    with caplog.at_level(logging.WARNING):
        await looking.refresh()
    assert (groups.owned, [record.message for record in caplog.records]) == (
        [],
        ["claim default/gpu, reserved for a PodGroup without pods: refused"],
    )
    await looking.refresh()
    assert groups.owned == [("default", "train")]


async def test_but_not_at_every_look():
    looking, claims = origins(Groups("train"), ApiError("refused"), wait=60.0)
    for _ in range(3):
        await looking.refresh()
    assert claims.answers == []
