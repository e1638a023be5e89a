"""What is destroyed only on proof: each guard alone keeps a claim, a reservation or a pod."""

from types import SimpleNamespace

import pytest

from kai_py.api.gpu_reservation import RESERVED_GPU, VISIBLE_GPUS, GpuGroup
from kai_py.api.records.core import ObjectMeta, Pod, PodSpec, PodStatus
from kai_py.api.records.record import convert_record
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.claims import extended_resources, recovery
from kai_py.commit.claims.device_holders import DeviceConflict
from kai_py.commit.claims.reconcile import release_claim
from kai_py.commit.claims.recovery import LeftoverClaim, find_leftover_claims, release_leftover
from kai_py.commit.eviction import find_long_graces
from kai_py.commit.pod_state import PodReading, ReadState
from kai_py.commit.upkeep import device_conflicts
from kai_py.commit.upkeep.device_conflicts import DeviceConflictResolver
from kai_py.commit.upkeep.reservation_pods import GpuUpkeep
from tests.commit.test_leftover_claims import USES, claim, pod

REF = ClaimRef("n", "c", "c")
GPU = GpuGroup("a", "g")


def reads(found, **calls):
    """An API of which each read shows ``found``; any other call but ``calls`` is an error."""

    async def read_claim(_ref):
        return found

    return SimpleNamespace(read_claim=read_claim, **calls)


@pytest.mark.parametrize(("reserved", "released"), [((), True), (("other",), False)])
async def test_a_leftover_claim_that_was_reserved_meanwhile_is_kept(
    monkeypatch, reserved, released
):
    done = []

    async def fence(_access, _pod):
        return PodReading(ReadState.WAITING)

    async def release(_access, ref, _leaving, _claim):
        done.append(ref)

    monkeypatch.setattr(recovery, "fence_pod", fence)
    monkeypatch.setattr(recovery, "release_claim", release)
    leftover = LeftoverClaim(REF, frozenset(), frozenset({PodRef("n", "p", "p")}))
    kept = await release_leftover(reads(claim(*reserved)), leftover)
    assert (done, bool(kept)) == (([REF], False) if released else ([], True))


def test_a_claim_of_a_pod_that_is_being_bound_is_not_left_over():
    """Two pods name the claim, and the watch does not show yet that one of them is bound."""
    being_bound = pod("b", named="c")
    assert len(find_leftover_claims([claim("p")], [USES, being_bound], {"ours"}, set())) == 1
    assert find_leftover_claims([claim("p")], [USES, being_bound], {"ours"}, {"b"}) == ()


async def test_a_claim_that_was_created_again_is_not_released_and_not_deleted():
    again = ClaimRef("n", "c", "of the claim before")
    await release_claim(
        reads(claim("p"), retry=SimpleNamespace(attempts=1)), again, frozenset({"p"})
    )
    await extended_resources.delete_claim(reads(claim("p")), again)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (ReadState.BOUND, "is kept: its pod is on a node"),
        (ReadState.UNKNOWN, "is kept: no answer"),
        (ReadState.WAITING, "is being deleted"),
        (ReadState.GONE, "is being deleted"),
    ],
)
async def test_a_claim_of_an_earlier_attempt_is_deleted_if_its_pod_is_on_no_node(
    monkeypatch, state, said
):
    deleted = []

    async def fence(_access, _pod):
        return PodReading(state, problem="no answer" if state is ReadState.UNKNOWN else "")

    async def delete(_access, ref):
        deleted.append(ref)

    monkeypatch.setattr(extended_resources, "fence_pod", fence)
    monkeypatch.setattr(extended_resources, "delete_claim", delete)
    told = await extended_resources._delete_earlier(None, PodRef("n", "p", "p"), claim())
    assert told.endswith(said)
    assert bool(deleted) is ("deleted" in said)


@pytest.mark.parametrize(
    ("behind", "states", "released"),
    [
        ("", ("waiting", "gone"), True),
        ("the watch is behind", ("waiting", "gone"), False),
        ("", ("waiting", "unknown"), False),
    ],
)
async def test_a_claim_with_a_device_of_another_is_released_if_all_its_pods_are_known_to_wait(
    monkeypatch, behind, states, released
):
    done = []

    async def catch_up():
        return behind

    async def release(ref, _pods):
        done.append(ref)
        return True

    async def fence(_access, ref):
        return PodReading(ReadState(ref.name))

    monkeypatch.setattr(device_conflicts, "fence_pod", fence)
    resolver = SimpleNamespace(
        access=None,
        catch_up=catch_up,
        holders=SimpleNamespace(is_current=lambda _conflict: True),
        _release=release,
        _keep_reason=lambda _pods: "",
    )
    conflict = DeviceConflict(("driver", "pool", "gpu"), REF, ClaimRef("n", "d", "d"))
    consumers = [pod(state) for state in states]
    resolved = await DeviceConflictResolver._give_up_claim(resolver, conflict, REF, consumers)
    assert resolved is released
    assert done == ([REF] if released else [])


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, True),
        ({"scheduler": "other"}, False),
        ({"deleted": None}, False),
        ({"grace": 30}, False),
        ({"reason": "DeletionByTaintManager"}, False),
    ],
)
def test_only_pods_that_a_scheduler_of_ours_evicted_get_a_shorter_grace_period(changes, found):
    case = {"scheduler": "ours", "deleted": "2026-01-01T00:00:00Z", "grace": 31}
    case |= {"reason": "PreemptionByScheduler"} | changes
    condition = {"type": "DisruptionTarget", "status": "True", "reason": case["reason"]}
    meta = {"name": "p", "namespace": "n", "uid": "p", "deletionTimestamp": case["deleted"]}
    document = {
        "metadata": {**meta, "deletionGracePeriodSeconds": case["grace"]},
        "spec": {"schedulerName": case["scheduler"], "nodeName": "a"},
        "status": {"phase": "Running", "conditions": [condition]},
    }
    pods = [convert_record(document, Pod)]
    assert list(find_long_graces(pods, {"ours"}, 30.0)) == (pods if found else [])


def gpu_pod(name, phase="Running", **annotations):
    return Pod(
        metadata=ObjectMeta(name=name, namespace="n", uid=name, annotations=annotations),
        spec=PodSpec(node_name="a", scheduler_name="ours"),
        status=PodStatus(phase=phase),
    )


@pytest.mark.parametrize(
    ("behind", "reserved", "evicted"),
    [
        ("", ["", "", ""], True),
        ("the watch is behind", ["", "", ""], False),
        ("", ["uuid", "uuid", "uuid"], False),
        ("", ["", "uuid", "uuid"], False),
        ("", ["", "", "uuid"], False),
        ("", ["another", "another", "another"], True),
    ],
)
async def test_a_pod_is_evicted_if_two_looks_show_that_its_gpu_is_not_reserved(
    behind, reserved, evicted
):
    """``reserved``: in the first look, in the second, and once the watch has caught up."""
    looks, done = [], []
    sharer = gpu_pod("p", **{VISIBLE_GPUS: "other,nvidia.com/gpu=uuid"})

    def reservations(_gpu):
        return (gpu_pod("r", **{RESERVED_GPU: reserved[len(looks) - 1]}),)

    async def catch_up():
        looks.append(1)
        return behind

    async def evict(_gpu, ref):
        done.append(ref.name)

    upkeep = SimpleNamespace(
        groups=SimpleNamespace(
            shared=lambda: (GPU,), sharers=lambda _gpu: (sharer,), reservations=reservations
        ),
        catch_up=catch_up,
        scheduler_names={"ours"},
        _lost=frozenset(),
        _evict=evict,
    )
    upkeep._is_ours = lambda each: GpuUpkeep._is_ours(upkeep, each)
    upkeep._is_reserved = lambda gpu, each: GpuUpkeep._is_reserved(upkeep, gpu, each)
    for _ in range(2):
        looks.append(1)
        assert not done, "one look is not enough"
        await GpuUpkeep._evict_unreserved(upkeep)
    assert done == (["p"] if evicted else [])
