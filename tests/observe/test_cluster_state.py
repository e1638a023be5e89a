"""The record of a cluster: queues, domains, nodes in a character each, and pending gangs."""

from msgspec.structs import replace

from kai_py.api.records.node import NodeSpec
from kai_py.observe.cluster_state import cluster_state, fill_of, pending_gangs
from kai_py.observe.cluster_view import NodeUsage
from kai_py.observe.node_details import node_page
from tests.observe.shown import view_of
from tests.support import scenario
from tests.support.worlds import gang, world

RACK = "topology.kubernetes.io/rack"


def cluster(*objects):
    made = scenario.Cluster()
    made.add(*objects)
    return made


def node(name, rack="", **options):
    return scenario.node(name, labels={RACK: rack} if rack else {}, **options)


def test_nodes_stand_in_their_domains_with_what_queues_hold():
    view = view_of(
        cluster(
            scenario.queue("team", 8),
            node("n10", "b", gpus=4),
            node("n2", "b", gpus=4),
            node("n1", "a", gpus=4),
            *scenario.job_with_pods("train", 2, 2, queue="team", node="n2"),
            scenario.pod("foreign", 1, node="n1", scheduler_name="default-scheduler"),
        ).snapshot()
    )
    state = cluster_state(view)
    assert state.levels == (RACK,)
    assert (state.nodes, state.gpus, state.allocated) == (3, 12.0, 5.0)
    assert state.owners == ("team", "")
    first, second = state.domains
    assert (first.name, first.fill, first.owners, first.by_queue) == ("a", "2", (1,), {"": 1.0})
    assert (second.name, second.fill, second.owners) == ("b", "90", (0, -1))
    assert second.by_queue == {"team": 4.0}


def test_nodes_without_labels_are_one_domain():
    state = cluster_state(view_of(world({"n2": 8, "n1": 8}).snapshot(0.0)))
    assert state.levels == ()
    assert [(domain.name, domain.nodes) for domain in state.domains] == [("", 2)]


def test_a_node_in_part_use_is_neither_free_nor_full():
    def fill(used, gpus=8.0, *, usable=True):
        return fill_of(NodeUsage(0, "n", gpus, {"q": used} if used else {}, usable))

    assert fill(0.0) == "0"
    assert fill(0.1) == "1"
    assert fill(7.9) == "8"
    assert fill(8.0) == "9"
    assert fill(0.0, 0.0) == "-"
    assert fill(8.0, usable=False) == "x"


def test_cordoned_nodes_are_told():
    cordoned = replace(node("n1", gpus=4), spec=NodeSpec(unschedulable=True))
    (domain,) = cluster_state(view_of(cluster(cordoned).snapshot())).domains
    assert (domain.fill, domain.unusable) == ("x", 1)


def test_a_pending_gang_is_in_the_line_of_its_queue():
    waiting = [
        gang("late", pods=2, gpus=8, created=20.0),
        gang("early", pods=2, gpus=8, created=10.0),
        gang("urgent", pods=2, gpus=8, created=30.0, priority=5),
        gang("runs", pods=1, gpus=4, node="n1"),
    ]
    view = view_of(world({"n1": 4}, *waiting).snapshot(100.0))
    line = list(pending_gangs(view))
    assert [each.gang.rpartition("/")[2] for each in line] == ["urgent", "early", "late"]
    assert [(each.queue_position, each.queue_length) for each in line] == [(1, 3), (2, 3), (3, 3)]
    assert (line[0].gpus, line[0].pods, line[0].min_members, line[0].stage) == (
        16.0,
        2,
        2,
        "Resources",
    )
    assert "Insufficient nvidia.com/gpu" in line[0].message
    state = cluster_state(view)
    assert (state.running_gangs, state.pending_gangs) == (1, 3)
    assert state.queues[0].pending_by_stage == {"Resources": 3}


def test_a_page_of_nodes_names_the_holder_of_each_device():
    made = cluster(
        scenario.queue("team", 8),
        scenario.device_class(),
        *(node(f"n{i}", "r", gpus=0) for i in range(3)),
        *(scenario.gpu_slice(f"n{i}", 2) for i in range(3)),
        scenario.job("train", 1, "team"),
        scenario.claim("c", 1, owner="train-0", held_by=["train-0"], on=[("n1", "gpu-1")]),
        scenario.claiming(
            scenario.pod("train-0", 0, node="n1", owner=scenario.job("train", 1, "team")), "c"
        ),
    )
    view = view_of(made.snapshot())
    assert cluster_state(view).domains[0].fill == "040"
    page = node_page(view, "r", offset=1, limit=1)
    assert (page.total, page.offset, [each.node for each in page.nodes]) == (3, 1, ["n1"])
    (shown,) = page.nodes
    assert [(each.device, each.status.value) for each in shown.devices] == [
        ("gpu-0", "Free"),
        ("gpu-1", "Allocated"),
    ]
    (holder,) = shown.devices[1].claims
    assert (holder.claim, holder.gang, holder.queue) == ("default/c", "default/Job/train", "team")
    (occupant,) = shown.occupants
    assert (occupant.gang, occupant.pods, occupant.gpus) == ("default/Job/train", 1, 1.0)
    assert node_page(view, "elsewhere", offset=0, limit=1) is None


def test_the_largest_gang_is_what_idle_gpus_take():
    nodes = [node("n0", "r0"), node("n1", "r1"), node("n2", "r0")]
    cordoned = node("n3", "r1", unschedulable=True)
    held = [scenario.pod("a", 5, queue="q", node="n0"), scenario.pod("b", 8, queue="q", node="n1")]
    made = cluster(*nodes, cordoned, scenario.queue("q", 32), *held)
    found = cluster_state(view_of(made.snapshot())).largest_gangs
    sizes = [(each.gpus_per_pod, each.pods, each.in_one_domain) for each in found]
    assert sizes == [(1, 11, 11), (2, 5, 5), (4, 2, 2), (8, 1, 1)]


def test_goodput_leaves_out_gangs_that_are_not_whole():
    whole = scenario.pod("whole", 2, queue="q", node="n0")
    leaving = scenario.pod("leaving", 3, queue="q", node="n0", leaving=True)
    owner, first, second = scenario.job_with_pods(
        "half", 2, 1, queue="q", annotations={"scheduling.kai.io/min-available": "2"}
    )
    first = replace(first, spec=replace(first.spec, node_name="n0"))
    made = cluster(node("n0"), scenario.queue("q", 8), whole, leaving, owner, first, second)
    assert cluster_state(view_of(made.snapshot())).productive == 2.0
