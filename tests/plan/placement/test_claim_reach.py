"""A gang whose pods share a claim goes where all of them can access its devices."""

from kai_py.plan.placement import claim_reach
from kai_py.plan.plan import Stage
from tests.support.records import replace
from tests.support.scenario import (
    claim,
    claiming,
    cluster,
    device_class,
    device_slice,
    evicted,
    gpu_slice,
    job,
    node,
    nominated,
    placed,
    pod,
    queue,
)

ATTEMPTS = 4
"""To place a gang now, once others have gone, and on empty nodes."""


def hardware(*cpus: str):
    """Nodes n0, n1, … with so much cpu and one GPU each."""
    made = [device_class(), queue("team", 8)]
    for i, cpu in enumerate(cpus):
        made += [node(f"n{i}", 0, cpu=cpu), gpu_slice(f"n{i}", 1)]
    return made


def fabric(rack: str):
    """A device that all nodes of a rack can access."""
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": [rack]}]}
    where = {"nodeName": "", "nodeSelector": {"nodeSelectorTerms": [term]}}
    return device_slice(rack, [{"name": "gpu"}], **where)


def gang(*cpus: str, claims=("shared",)):
    """A gang with a pod for each amount of cpu; its pods share ``claims`` by turns."""
    owner = job("gang", len(cpus), "team")
    made = [owner, *(claim(name) for name in dict.fromkeys(claims))]
    for i, cpu in enumerate(cpus):
        member = pod(f"gang-{i}", 0, queue="team", owner=owner, requests={"cpu": cpu})
        made.append(claiming(member, claims[i % len(claims)], template=False))
    return made


def test_pods_of_several_sizes_share_the_device_of_the_node_that_holds_them_all():
    plan = cluster(*hardware("3", "4"), *gang("2", "1", "1")).plan()
    assert placed(plan) == dict.fromkeys(("gang-0", "gang-1", "gang-2"), "n1")


def test_a_fabric_device_is_shared_across_its_nodes_beside_a_larger_node_out_of_reach():
    racks = {"n0": "a", "n1": "a", "large": "b"}
    nodes = [
        node(name, 0, cpu="9" if name == "large" else "2", labels={"rack": rack})
        for name, rack in racks.items()
    ]
    pods = gang("1", "1", "1")
    plan = cluster(*nodes, device_class(), queue("team", 8), fabric("a"), *pods).plan()
    assert sorted(placed(plan).values()) == ["n0", "n1", "n1"]


def test_another_device_is_taken_where_the_first_is_out_of_reach_for_the_rest():
    racks = {"n0": "a", "n1": "a", "small": "b"}
    nodes = [
        node(name, 0, cpu="1" if name == "small" else "2", labels={"rack": rack})
        for name, rack in racks.items()
    ]
    devices = [fabric("a"), fabric("b")]
    plan = cluster(*nodes, device_class(), queue("team", 8), *devices, *gang("1", "1", "1")).plan()
    assert sorted(placed(plan).values()) == ["n0", "n1", "n1"]
    [allocated] = [
        each for placement in plan.placements for each in placement.pods if each.allocate
    ]
    assert [each.pool for each in allocated.allocate[0].allocation.devices.results] == ["a"]


def test_each_of_two_shared_claims_is_on_one_node():
    plan = cluster(*hardware("3", "4"), *gang("2", "2", "2", "1", claims=("one", "two"))).plan()
    nodes = placed(plan)
    assert nodes["gang-0"] == nodes["gang-2"] == "n1"
    assert nodes["gang-1"] == nodes["gang-3"] == "n0"


def test_the_reason_names_the_device_that_only_some_of_them_can_access():
    [unplaced] = cluster(*hardware("2", "2"), *gang("1", "1", "1")).plan().unplaced
    assert unplaced.stage is Stage.DEVICES
    expected = "1 cannot access gpu.nvidia.com/n0/gpu-0, which claim default/shared has for other"
    assert expected in unplaced.message
    assert "deallocated" not in unplaced.message


def test_only_some_allocations_are_tried_on_many_nodes(monkeypatch):
    tried = []
    monkeypatch.setattr(claim_reach, "_reaches", counted(claim_reach._reaches, tried))
    [unplaced] = cluster(*hardware(*["2"] * 70), *gang("1", "1", "1")).plan().unplaced
    assert unplaced.stage is Stage.DEVICES
    assert 0 < len(tried) <= ATTEMPTS * (claim_reach.MAX_REACHES_TO_TRY + 1)


def test_allocations_of_several_claims_have_one_bound(monkeypatch):
    """The five smallest pods fit on no node together, whatever the claims of the others get."""
    tried = []
    monkeypatch.setattr(claim_reach, "_reaches", counted(claim_reach._reaches, tried))
    monkeypatch.setattr(claim_reach, "MAX_ALLOCATIONS", 50)
    sizes = {"a": "1.2", "b": "1.1", "c": "1"}
    pods = gang(*(sizes[name] for name in "abcabccccc"), claims=tuple("abcabccccc"))
    [unplaced] = cluster(*hardware(*["4"] * 30), *pods).plan().unplaced
    assert unplaced.stage is Stage.DEVICES
    assert 50 < len(tried) <= ATTEMPTS * 4 * 50


def test_no_allocation_is_tried_for_claims_that_one_pod_has(monkeypatch):
    """Claims that pods name are not told from shared ones but by who names them."""
    tried = []
    monkeypatch.setattr(claim_reach, "_reaches", counted(claim_reach._reaches, tried))
    own = ("a", "b", "c", "d")
    assert (
        len(placed(cluster(*hardware("1", "1", "2"), *gang("2", "1", "1", claims=own)).plan())) == 3
    )
    assert not tried
    mixed = gang("1", "1", "1", "1", claims=("a", "shared", "shared", "b"))
    assert len(placed(cluster(*hardware("1", "1", "2"), *mixed).plan())) == 4
    assert len(tried) == 1


def counted(function, calls):
    def call(*arguments):
        calls.append(arguments)
        return function(*arguments)

    return call


def test_victims_make_way_for_pods_that_share_one_claim():
    """There are fewer devices than pods, but one is enough for all of them."""
    low = claiming(pod("low", 0, queue="team", node="n0"), "held")
    held = claim("held", owner="low", held_by=["low"], on=[("n0", "gpu-0")])
    owner, shared, *pods = gang("1", "1", "1")
    high = [replace(each, spec=replace(each.spec, priority=5)) for each in pods]
    plan = cluster(*hardware("8"), held, low, owner, shared, *high).plan()
    assert evicted(plan) == ["low"]
    assert sorted(nominated(plan).values()) == ["n0"] * 3


def test_a_domain_with_fewer_devices_than_pods_is_large_enough():
    racks = [node(f"n{i}", 0, labels={"rack": f"r{i}"}) for i in range(2)]
    owner, *rest = gang("1", "1", "1")
    mark = {"kai.scheduler/topology-required-placement": "rack"}
    meta = replace(owner.metadata, annotations={**owner.metadata.annotations, **mark})
    slices = [gpu_slice(each.metadata.name, 1) for each in racks]
    owner = replace(owner, metadata=meta)
    plan = cluster(*racks, *slices, device_class(), queue("team", 8), owner, *rest).plan()
    assert len(placed(plan)) == 3
    assert len(set(placed(plan).values())) == 1
