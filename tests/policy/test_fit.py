"""Static filters name the first that removes a node; copies never promise more than there is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.gpu_share import GpuShare
from kai_py.api.records.core import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    SelectorRequirement,
    Toleration,
)
from kai_py.api.records.node import Taint, tolerates
from kai_py.api.records.resource import ResourceClaimSpec
from kai_py.api.spot import SpotUse
from kai_py.policy.fit import StaticFits, replicas_that_fit, static_fit
from kai_py.policy.node_filters import unwanted_taints
from kai_py.snapshot.extended_resources import ExtendedResources
from kai_py.snapshot.nodes import SpotChoice, node_columns
from kai_py.snapshot.resources import ResourceIndex
from kai_py.snapshot.shape import ClaimUse, Shape
from tests.support.scenario import cluster, node

ON_A = NodeSelector(
    node_selector_terms=(
        NodeSelectorTerm(
            match_expressions=(
                SelectorRequirement(key="kubernetes.io/hostname", operator="In", values=("a",)),
            )
        ),
    )
)
RESOURCES = ResourceIndex().extended(["nvidia.com/gpu"])


def shape(**fields):
    return Shape(number=0, requests=fields.pop("requests", {"cpu": 1000.0}), **fields)


def columns(*nodes):
    return node_columns(nodes, RESOURCES, 1)


@given(
    st.lists(
        st.tuples(st.integers(-4, 20), st.integers(-4, 20), st.booleans()), min_size=1, max_size=8
    ),
    st.integers(1, 5),
    st.integers(1, 5),
)
def test_copies_are_what_fits_and_one_more_does_not(rows, cpu, memory):
    free = np.zeros((len(RESOURCES.names), len(rows)))
    free[0] = [row[0] for row in rows]
    free[1] = [row[1] for row in rows]
    mask = np.array([row[2] for row in rows])
    wanted = shape(requests={"cpu": float(cpu), "memory": float(memory)})
    for row, copies in enumerate(replicas_that_fit(wanted, RESOURCES, free, mask, free)):
        have = rows[row][:2]
        fits = mask[row] and copies * cpu <= have[0] and copies * memory <= have[1]
        more = (copies + 1) * cpu <= have[0] and (copies + 1) * memory <= have[1]
        assert fits or copies == 0
        assert not (mask[row] and more)


def test_a_resource_that_no_node_has_fits_nowhere():
    free = np.full((len(RESOURCES.names), 2), 100.0)
    wanted = shape(requests={"example.com/unknown": 1.0})
    assert not replicas_that_fit(wanted, RESOURCES, free, np.ones(2, bool), free).any()


def test_mirrored_requests_bind_only_where_the_resource_is_reported():
    gpu = RESOURCES.positions["nvidia.com/gpu"]
    allocatable = np.full((len(RESOURCES.names), 2), 100.0)
    allocatable[gpu] = [8, 0]
    free = allocatable.copy()
    free[gpu] = [3, -5]
    wanted = shape(requests={"pods": 1.0}, plugin_equivalents={"nvidia.com/gpu": 2.0})
    copies = replicas_that_fit(wanted, RESOURCES, free, np.ones(2, bool), allocatable)
    assert list(copies) == [1, 100]


def test_a_host_port_fits_once_per_node():
    free = np.full((len(RESOURCES.names), 1), 100.0)
    wanted = shape(requests={"pods": 1.0}, host_ports=(("", "TCP", 80),))
    assert list(replicas_that_fit(wanted, RESOURCES, free, np.ones(1, bool), free)) == [1]


def test_a_node_counts_for_the_first_filter_that_removes_it():
    tainted = node("b", taints=(Taint(key="k", effect="NoSchedule"),))
    cordoned = node("c", unschedulable=True, taints=(Taint(key="k", effect="NoSchedule"),))
    wanted = shape(node_selector={"disk": "ssd"})
    fit = static_fit(wanted, columns(node("a"), tainted, cordoned))
    assert fit.removed == (
        ("unschedulable", 1),
        ("had untolerated taint {k: }", 1),
        ("didn't match Pod's node selector", 1),
    )


def test_soft_taints_lower_the_preference():
    soft = node("b", taints=(Taint(key="k", effect="PreferNoSchedule"),))
    fit = static_fit(shape(), columns(node("a"), soft))
    assert fit.mask.all()
    assert fit.preference[0] > fit.preference[1]


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(key="k", value="v"), True),
        (Toleration(key="k", value="other"), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(key="k", value="v", effect="NoExecute"), False),
    ],
)
def test_tolerations(toleration, covers):
    assert tolerates([toleration], Taint(key="k", value="v", effect="NoSchedule")) is covers


@pytest.mark.parametrize(
    ("operator", "limit", "value", "covers"),
    [
        ("Gt", "900", "950", True),
        ("Gt", "950", "950", False),
        ("Lt", "900", "-5", True),
        ("Lt", "900", "950", False),
        ("Gt", "900", "0950", False),
        ("Lt", "900", "high", False),
        ("Lt", "", "5", False),
    ],
)
def test_tolerations_of_more_or_less_than_a_number(operator, limit, value, covers):
    toleration = Toleration(key="sla", operator=operator, value=limit)
    assert tolerates([toleration], Taint(key="sla", value=value, effect="NoSchedule")) is covers


CONSTRAINTS = [
    {"node_selector": {"disk": "ssd"}},
    {"node_selector": {"disk": "hdd"}},
    {"tolerations": (Toleration(operator="Exists"),)},
    {"affinity": Affinity(node_affinity=NodeAffinity(required=ON_A))},
    {"volume_selectors": (ON_A,)},
    {"claims": (ClaimUse("c", ResourceClaimSpec(), node_selector=ON_A),)},
    {"claims": (ClaimUse("d", ResourceClaimSpec(), node_selector=ON_A),)},
    {"spot": SpotChoice(SpotUse.ONLY, (("spot", ("true",)),))},
    {"gpu_share": GpuShare(fraction=0.5)},
    {"requests": {"nvidia.com/gpu": 1.0}},
    {"requests": {"nvidia.com/mig-1g.5gb": 1.0}},
    {"extended": ExtendedResources(resources=("nvidia.com/gpu",))},
]


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_shapes_share_a_fit_only_if_their_constraints_are_equal(constraint):
    """Amounts make no difference, and each constraint does."""
    fits, nodes = StaticFits(), columns(node("a", labels={"disk": "ssd"}), node("b"))
    requests = constraint.get("requests", {"cpu": 1.0})
    shapes = [
        Shape(number=0, requests={"cpu": 1.0}),
        Shape(number=1, **{**constraint, "requests": requests}),
        Shape(number=2, **{**constraint, "requests": {**requests, "memory": 7.0}}),
    ]
    plain, found, other = [fits.of(each, nodes) for each in shapes]
    assert found is other
    assert found is not plain
    for each, shared in zip(shapes, (plain, found, other), strict=True):
        alone = static_fit(each, nodes)
        assert shared.removed == alone.removed
        assert (shared.mask == alone.mask).all()
        assert (shared.preference == alone.preference).all()


def test_each_constraint_has_a_fit_of_its_own():
    fits, nodes = StaticFits(), columns(node("a"))
    found = [
        fits.of(Shape(number=i, **{"requests": {"cpu": 1.0}, **each}), nodes)
        for i, each in enumerate(CONSTRAINTS)
    ]
    assert len(set(map(id, found))) == len(CONSTRAINTS)


@pytest.mark.parametrize(
    ("effects", "tolerated", "count"),
    [
        ((), "", 0),
        (("PreferNoSchedule",), "", 1),
        (("PreferNoSchedule", "PreferNoSchedule"), "", 2),
        (("PreferNoSchedule", "PreferNoSchedule"), "k0", 1),
        (("NoSchedule", "NoExecute"), "", 0),
        (("NoSchedule", "PreferNoSchedule"), "k0", 1),
        (("NoSchedule", "PreferNoSchedule"), "k1", 0),
    ],
)
def test_a_taint_that_is_not_tolerated_makes_a_node_unwanted_if_pods_should_avoid_it(
    effects, tolerated, count
):
    taints = tuple(Taint(key=f"k{n}", effect=effect) for n, effect in enumerate(effects))
    nodes = cluster(node("a", taints=taints), node("b")).snapshot().nodes
    tolerations = (Toleration(key=tolerated, operator="Exists"),) if tolerated else ()
    assert unwanted_taints(tolerations, nodes).tolist() == [count, 0]
