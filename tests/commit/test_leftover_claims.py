"""Which allocated claims no pod is going to use, as their devices are freed: each condition."""

import pytest

from kai_py.api.records.core import Pod
from kai_py.api.records.record import convert_record
from kai_py.api.records.resource import ResourceClaim
from kai_py.commit.claims.recovery import find_leftover_claims


def pod(uid, *, spec=(), named="", made="", phase="Pending"):
    """A waiting pod; ``named``: the claim in its spec; ``made``: the one in its status."""
    claims = [{"name": "a", "resourceClaimName": named} if named else {"name": "a"}]
    statuses = [{"name": "a", "resourceClaimName": made}] if made else []
    whole = {
        "metadata": {"name": uid, "namespace": "n", "uid": uid},
        "spec": {"schedulerName": "ours", "resourceClaims": claims, **dict(spec)},
        "status": {"phase": phase, "resourceClaimStatuses": statuses},
    }
    return convert_record(whole, Pod)


def claim(*reserved, owner="", is_allocated=True, resource="pods"):
    allocation = {"allocation": {"devices": {"results": []}}} if is_allocated else {}
    consumers = [{"resource": resource, "name": uid, "uid": uid} for uid in reserved]
    owners = [{"kind": "Pod", "name": owner, "uid": owner, "controller": True}] if owner else []
    meta = {"name": "c", "namespace": "n", "uid": "c", "ownerReferences": owners}
    status = {**allocation, "reservedFor": consumers}
    return convert_record({"metadata": meta, "status": status}, ResourceClaim)


ON_NODE = {"nodeName": "a"}
USES = pod("p", named="c")
BOUND = pod("b", spec=ON_NODE, named="c", phase="Running")
ENDED = pod("b", spec=ON_NODE, named="c", phase="Succeeded")


@pytest.mark.parametrize(
    ("held", "pods", "found"),
    [
        (claim(), [USES], ((), "p")),
        (claim(), [pod("p", made="c")], ((), "p")),
        (claim(owner="p"), [pod("p")], ((), "p")),
        (claim(), [USES, pod("q", made="c")], ((), "pq")),
        (claim(), [pod("p", named="other")], None),
        (claim(), [], None),
        (claim(is_allocated=False), [USES], None),
        (claim(), [pod("p", spec={"schedulerName": "other"}, named="c")], None),
        (claim(), [BOUND], None),
        (claim(), [USES, BOUND], None),
        (claim(), [USES, ENDED], ((), "p")),
        (claim("p"), [USES], ("p", "p")),
        (claim("p", "q"), [USES], ("p", "p")),
        (claim("q"), [USES], None),
        (claim("b"), [BOUND], None),
        (claim("p", "b"), [USES, BOUND], ("p", "p")),
        (claim("p"), [USES, BOUND], None),
        (claim("p", owner="b"), [USES, pod("b", spec=ON_NODE)], None),
        (claim("p"), [USES, ENDED], ("p", "p")),
    ],
)
def test_a_claim_is_left_over_once_no_pod_that_may_use_it_is_on_a_node(held, pods, found):
    leftovers = find_leftover_claims([held], pods, {"ours"}, set())
    told = [(each.consumers, {ref.uid for ref in each.pods}) for each in leftovers]
    assert told == ([] if found is None else [(frozenset(found[0]), set(found[1]))])
    in_use = {each.metadata.uid for each in pods}
    assert find_leftover_claims([held], pods, {"ours"}, in_use) == ()


GROUPED = {"schedulingGroup": {"podGroupName": "g"}}


@pytest.mark.parametrize(
    ("pods", "known", "is_unused"),
    [
        ([], [("n", "g")], True),
        ([], [("n", "other")], False),
        ([], [], False),
        ([pod("p", spec=GROUPED)], [], True),
        ([pod("p", spec=GROUPED | ON_NODE)], [("n", "g")], False),
        ([pod("p", spec=GROUPED | ON_NODE, phase="Failed")], [("n", "g")], True),
        ([pod("p", spec=GROUPED), pod("q", spec=GROUPED | ON_NODE)], [], False),
        ([pod("p", spec=GROUPED | {"schedulerName": "other"})], [("n", "g")], False),
    ],
)
def test_a_claim_of_a_group_is_left_over_once_none_of_its_pods_is_on_a_node(pods, known, is_unused):
    held = claim("g", resource="podgroups")
    found = find_leftover_claims([held], pods, {"ours"}, set(), known)
    assert [each.consumers for each in found] == ([frozenset({"g"})] if is_unused else [])
    assert find_leftover_claims([claim("g")], pods, {"ours"}, set(), known) == ()
