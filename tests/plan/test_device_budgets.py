"""Searches for devices that cost too much hurt their gang only, and end."""

from types import SimpleNamespace

import pytest

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.dra.spending import SelectorAllowance, Spending, StepAllowance
from kai_py.grouping.grouper import Grouper
from kai_py.plan.cycle.deadlines import next_deadline
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.plan import Stage
from kai_py.plan.session.search_budgets import SearchBudgets
from kai_py.plan.session.settings import CycleSettings
from kai_py.snapshot.builder import SnapshotBuilder
from tests.support.cpu_limit import cpu_limit
from tests.support.patience import processor_seconds
from tests.support.scenario import (
    START,
    Cluster,
    claim_of,
    claiming,
    claiming_job,
    device_class,
    device_slice,
    gpu_slice,
    node,
    placed,
    pod,
    queue,
)

NESTED = "[0,1,2,3,4,5,6,7,8,9].all({}, {})"
SIZES = (
    33,
    29,
    31,
    27,
    26,
    28,
    30,
    25,
    24,
    35,
    23,
    22,
    27,
    28,
    29,
    30,
    20,
    19,
    18,
    31,
    29,
    21,
    24,
    29,
)
"""Shares of 638 GiB that no counting rules out on 8 devices of 80, and that hardly fit."""


def costly(number: int, nested: str = "edcba") -> str:
    """A selector that costs about 550,000 to evaluate, which the API server admits.

    Without one of the ``nested`` variables it costs a tenth.
    """
    body = f"{nested[0]} > {-number - 1}"
    for variable in nested:
        body = NESTED.format(variable, body)
    return body


def costly_claim(name, owner, *, requests, selectors, mode):
    exact = {"deviceClassName": "gpu.nvidia.com", "allocationMode": mode}
    asked = [
        {
            "name": f"r{i}",
            "exactly": exact
            | {
                "selectors": [
                    {"cel": {"expression": costly(i * selectors + each)}}
                    for each in range(selectors)
                ]
            },
        }
        for i in range(requests)
    ]
    return claim_of(name, *asked, owner=owner)


def shared_slice(node_name):
    devices = [
        {
            "name": f"gpu-{i}",
            "allowMultipleAllocations": True,
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for i in range(8)
    ]
    return device_slice(node_name, devices)


def puzzle_claim(name, owner, sizes=SIZES):
    requests = [
        {
            "name": f"r{i}",
            "exactly": {
                "deviceClassName": "gpu.nvidia.com",
                "capacity": {"requests": {"memory": f"{size}Gi"}},
            },
        }
        for i, size in enumerate(sizes)
    ]
    return claim_of(name, *requests, owner=owner)


class Spent(Cluster):
    """A cluster whose searches for devices may spend so much."""

    def __init__(self, spending, steps=100_000, **settings):
        super().__init__(settings)
        self.devices = ClusterDevices(spending=spending, allocator_steps=steps)
        self.builder = SnapshotBuilder(Grouper().identify, self.devices, lambda spec: spec)
        self.memory = CycleMemory(self.devices)


def reasons(plan):
    return {each.gang.rpartition("/")[2]: each for each in plan.unplaced}


def costly_world(mode):
    expensive = costly_claim("costly-gpu", "costly", requests=32, selectors=32, mode=mode)
    return [
        node("n", 0),
        gpu_slice("n"),
        device_class(),
        queue("team", 8),
        queue("other", 8),
        expensive,
        claiming(pod("costly", 0, queue="team", created=0), "costly-gpu"),
        claiming_job("good", 2, queue="other", created=9),
    ]


@pytest.mark.slow
def test_selectors_that_cost_too_much_are_told_and_stop_no_other_gang():
    cluster = Cluster().add(*costly_world("ExactCount"))
    with cpu_limit(processor_seconds(20.0)):
        first = cluster.plan(1000.0)
    assert set(placed(first)) == {"good-0", "good-1"}
    told = reasons(first)["costly"]
    assert told.stage is Stage.DEVICES
    assert "its selectors cost more than 2,000,000 to evaluate" in told.message
    spent = cluster.devices.spending.selectors
    assert spent._in_cycle <= 2_000_000 + 1_000_000 + 100_000
    cluster.add(pod("later", 0, queue="other"))
    second = cluster.plan(1010.0)
    assert spent._in_cycle < 1_000, "what is too expensive is remembered"
    assert reasons(second)["costly"].message == told.message


@pytest.mark.parametrize(("allowed", "hinted"), [(1_000_000, True), (1, False)])
def test_what_the_search_may_not_parse_is_not_parsed_for_a_hint(allowed, hinted):
    misspelt = 'device.attributes["gpu.nvidia.com"].productNam == "T4"'
    selectors = [{"cel": {"expression": text}} for text in ("1 == 1", misspelt)]
    exact = {"deviceClassName": "gpu.nvidia.com", "selectors": selectors}
    cluster = Spent(Spending(StepAllowance(), SelectorAllowance(allowed))).add(
        node("n", 0),
        gpu_slice("n"),
        device_class(),
        queue("team", 8),
        claim_of("odd", {"name": "r", "exactly": exact}, owner="odd"),
        claiming(pod("odd", 0, queue="team"), "odd"),
    )
    told = reasons(cluster.plan())["odd"]
    assert told.stage is Stage.DEVICES
    assert ("productName" in told.message) == hinted
    assert cluster.devices.spending.selectors.has_read(misspelt) == hinted


def test_accounting_evaluates_no_expensive_selector():
    """A claim for all devices is counted as its objects come in; too expensive, by its class."""
    with cpu_limit(processor_seconds(5.0)):
        cluster = Cluster().add(*costly_world("All"))
        snapshot = cluster.snapshot()
    [costly_gang] = [each for key, each in snapshot.gangs.items() if key.endswith("costly")]
    assert costly_gang.members[0].charge["gpu"] == 32 * 8


def test_a_cheap_selector_still_counts_what_it_selects():
    asked = [
        {
            "name": "all",
            "exactly": {
                "deviceClassName": "gpu.nvidia.com",
                "allocationMode": "All",
                "selectors": [
                    {
                        "cel": {
                            "expression": 'device.attributes["gpu.nvidia.com"].productName == "T4"'
                        }
                    }
                ],
            },
        }
    ]
    cluster = Cluster().add(
        node("n", 0),
        gpu_slice("n", 8),
        node("m", 0),
        gpu_slice("m", 2, product="T4"),
        device_class(),
        queue("team", 8),
        claim_of("all", *asked, owner="one"),
        claiming(pod("one", 0, queue="team"), "all"),
    )
    [gang] = cluster.snapshot().gangs.values()
    assert gang.members[0].charge["gpu"] == 2


def puzzle_world(nodes, gangs):
    """Nodes with differently used devices, gangs that ask for what hardly fits, and a small one."""
    made = [device_class(), queue("team", 99), queue("other", 99)]
    for i in range(nodes):
        made += [node(f"n{i}", 0), shared_slice(f"n{i}")]
    for i in range(gangs):
        sizes = (SIZES[0] + i, *SIZES[1:])
        made += [
            puzzle_claim(f"puzzle{i}-gpu", f"puzzle{i}", sizes),
            claiming(pod(f"puzzle{i}", 0, queue="team", created=i), f"puzzle{i}-gpu"),
        ]
    made += [
        puzzle_claim("small-gpu", "small", (1,)),
        claiming(pod("small", 0, queue="other", created=99), "small-gpu"),
    ]
    return made


def test_a_cycle_makes_no_more_steps_than_it_may_and_the_others_go_on():
    cluster = Spent(Spending(StepAllowance(2_000, 5_000)), steps=2_000).add(*puzzle_world(1, 8))
    plan = cluster.plan()
    assert set(placed(plan)) == {"small"}
    assert cluster.devices.spending.steps._in_cycle <= 5_000 + 100
    assert "search budget exceeded" in reasons(plan)["puzzle0"].message


def test_only_gangs_that_are_there_are_remembered_as_cut_short():
    memory = CycleMemory(ClusterDevices(), cut_short={"default/Job/gone": 1, "default/Job/here": 2})
    gangs = {"default/Job/here": None, "default/Job/new": None}
    over = SimpleNamespace(
        search_budgets=SearchBudgets(0, 0, cut_short={"default/Job/new"}),
        turns=SimpleNamespace(over=True),
        snapshot=SimpleNamespace(gangs=gangs),
    )
    memory.record_searches(over)
    assert memory.cut_short == {"default/Job/here": 2, "default/Job/new": 0}


def test_gangs_whose_search_was_cut_short_come_last_and_all_get_an_answer():
    """The budget of a cycle suffices for two of the eight: each has its turn in the end."""
    cluster = Spent(Spending(StepAllowance(2_000, 5_000)), steps=2_000).add(*puzzle_world(1, 8))
    cluster.remove(claiming(pod("small", 0, queue="other"), "small-gpu"))
    waiting, cycles = {"start"}, 0
    while waiting:
        cluster.plan(1000.0 + cycles)
        left, cycles = set(cluster.memory.cut_short), cycles + 1
        assert left < waiting or cycles == 1, "some search was decided"
        deadline = next_deadline(cluster.snapshot(1000.0 + cycles), CycleSettings(), cluster.memory)
        assert (deadline == START + 1001.0 + cycles) == bool(left), "the next cycle comes soon"
        waiting = left
    assert 1 < cycles <= 8


def test_a_gang_that_uses_up_a_cycle_does_not_head_the_next():
    """With the budget of one search per cycle the small gang, which comes last, is not starved."""
    cluster = Spent(Spending(StepAllowance(2_000, 2_000)), steps=2_000).add(*puzzle_world(1, 3))
    plans = [placed(cluster.plan(1000.0 + second)) for second in range(4)]
    assert {"small": "n0"} in plans


def test_selectors_of_many_claims_wait_for_a_later_cycle():
    """Each costs over half of what a cycle may spend: two are evaluated in one."""
    spending = Spending(selectors=SelectorAllowance(2_000_000, 80_000))
    made = [node("n", 0), gpu_slice("n"), device_class(), queue("team", 8)]
    for i in range(3):
        exact = {
            "deviceClassName": "gpu.nvidia.com",
            "selectors": [{"cel": {"expression": costly(i, "dcba")}}],
        }
        made += [
            claim_of(f"c{i}", {"name": "r", "exactly": exact}, owner=f"p{i}"),
            claiming(pod(f"p{i}", 0, queue="team", created=i), f"c{i}"),
        ]
    cluster = Spent(spending).add(*made)
    first = cluster.plan(1000.0)
    assert set(placed(first)) == {"p0", "p1"}
    assert "used up the budget of the cycle" in reasons(first)["p2"].message
    assert "p2" in placed(cluster.plan(1001.0))
