import pytest

from kai_py.api.gpu_share import SharedGpu, gpu_share
from kai_py.api.records.core import (
    Container,
    ContainerResourceClaim,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSchedulingGate,
    ResourceRequirements,
)
from kai_py.grouping.gang import GangSpec, Owner, Subgroup
from kai_py.snapshot.accounting import Accounting
from kai_py.snapshot.charges import charge
from kai_py.snapshot.derived_pod import PodPlacement
from kai_py.snapshot.gang_members import member
from kai_py.snapshot.gangs import PodState
from kai_py.snapshot.pod_claims import pod_claims
from kai_py.snapshot.pod_demand import PodDemand
from kai_py.snapshot.pod_usage import pod_usage, shared_gpus_of
from kai_py.snapshot.shape import ShapeTable
from tests.support.cpu_limit import cpu_limit
from tests.support.patience import processor_seconds
from tests.support.records import replace
from tests.support.scenario import claim, claiming, pod, shared

ACCOUNTING = Accounting(
    request_weight=lambda _: 1.0, device_weight=lambda *_: 1.0, class_resource=lambda _: ""
)
SPEC = GangSpec(
    key="default/Pod/p",
    owner=Owner("v1", "Pod", "default", "p", "pod-p"),
    queue="team",
    tree=Subgroup("default", min_members=1),
)


def asked(each, *claims):
    """What ``each`` asks for in a cluster with ``claims``."""
    known = {(one.metadata.namespace, one.metadata.name): one for one in claims}
    resolved = pod_claims(each, lambda namespace, name: known.get((namespace, name)))
    share = gpu_share(each)
    return PodDemand(ShapeTable().intern(each, resolved.uses, gpu_share=share), resolved, share)


def cost(asks, *, pays=True):
    return charge(asks, ACCOUNTING, gpu_memory=80_000.0, is_charged=lambda _: pays)


@pytest.mark.parametrize(
    ("standing", "gated", "state"),
    [
        (PodPlacement(""), False, PodState.PENDING),
        (PodPlacement(""), True, PodState.GATED),
        (PodPlacement("node"), True, PodState.BOUND),
        (PodPlacement("node", terminating=True), False, PodState.RELEASING),
        (PodPlacement("", terminating=True), True, PodState.RELEASING),
    ],
)
def test_the_state_of_a_member_follows_from_where_it_stands(standing, gated, state):
    each = pod("p", scheduling_gates=(PodSchedulingGate(name="wait"),) if gated else ())
    joined = member(each, asked(each), standing, gpus=(), spec=SPEC, cost={})
    assert (joined.state, joined.node) == (state, standing.node)


def test_a_pod_without_a_node_holds_nothing():
    each = pod("p")
    assert pod_usage(each, asked(each), PodPlacement("", nominated="node"), (), ours=True) is None
    held = pod_usage(each, asked(each), PodPlacement("node", terminating=True), (), ours=True)
    assert (held.node, held.requests["nvidia.com/gpu"], held.releasing) == ("node", 1.0, True)


def test_gpus_being_written_go_before_those_that_the_labels_name():
    each = shared(pod("p", 0), "0.5", group="labelled")
    asks = asked(each)
    assert [gpu.group for gpu in shared_gpus_of(each, asks, PodPlacement(""))] == ["labelled"]
    written = (SharedGpu("written"),)
    assert shared_gpus_of(each, asks, PodPlacement("node", gpus=written)) == written


def test_a_pod_pays_for_its_own_claim_and_for_a_shared_one_only_if_it_is_asked_to():
    own = asked(claiming(pod("p", 0), "mine"), claim("mine", 2, owner="p"))
    assert cost(own, pays=False)["gpu"] == 2.0
    common = asked(claiming(pod("p", 0), "ours", template=False), claim("ours", 2))
    assert cost(common)["gpu"] == 2.0
    assert "gpu" not in cost(common, pays=False)


def test_a_part_of_a_gpu_costs_that_part():
    asks = asked(shared(pod("p", 0), "0.25"))
    assert cost(asks)["gpu"] == 0.25
    assert not asks.charged_by_shape


def test_each_of_thousands_of_claims_costs_the_same():
    names = [f"gpu-{i}" for i in range(20_000)]
    entries = tuple(PodResourceClaim(name=n, resource_claim_template_name="t") for n in names)
    statuses = tuple(PodResourceClaimStatus(name=n, resource_claim_name="mine") for n in names)
    listed = tuple(ContainerResourceClaim(name=n) for n in names)
    container = Container(name="main", resources=ResourceRequirements(claims=listed))
    plain = pod("p", 0, resource_claims=entries)
    each = replace(
        plain,
        spec=replace(plain.spec, containers=(container,)),
        status=replace(plain.status, resource_claim_statuses=statuses),
    )
    with cpu_limit(processor_seconds(5.0)):
        uses = asked(each, claim("mine", 1, owner="p")).claims.uses
    assert {use.containers for use in uses} == {1}
    assert len(uses) == len(names)
