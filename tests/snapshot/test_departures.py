"""Nodes that are about to go are known by what clouds, autoscalers and drivers write on them."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace
from pydantic import ValidationError

from kai_py.api.node_departures import (
    BUILT_IN,
    DepartureSignals,
    DepartureStage,
    NodeDeparturesConfig,
    NodeSignal,
)
from kai_py.api.records.core import Condition
from kai_py.api.records.node import Taint
from kai_py.config import parse_configuration
from tests.support.scenario import node

LOST, LEAVING, SUSPECT = DepartureStage


def with_condition(each, kind, status):
    found = (*each.status.conditions, Condition(type=kind, status=status))
    return replace(each, status=replace(each.status, conditions=found))


@pytest.mark.parametrize(
    ("key", "effect", "stage"),
    [
        ("karpenter.sh/disrupted", "NoSchedule", LEAVING),
        ("ToBeDeletedByClusterAutoscaler", "NoSchedule", LEAVING),
        ("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule", SUSPECT),
        ("aws-node-termination-handler/spot-itn", "NoSchedule", LEAVING),
        ("aws-node-termination-handler/rebalance-recommendation", "NoSchedule", SUSPECT),
        ("cloud.google.com/impending-node-termination", "NoSchedule", LEAVING),
        ("remediator.kubernetes.azure.com/unschedulable", "NoSchedule", LEAVING),
        ("node.kubernetes.io/out-of-service", "NoExecute", LOST),
        ("node.kubernetes.io/unreachable", "NoExecute", LOST),
        ("node.kubernetes.io/unreachable", "NoSchedule", None),
        ("node.kubernetes.io/unschedulable", "NoSchedule", None),
        ("nvidia.com/gpu", "NoSchedule", None),
    ],
)
def test_taints(key, effect, stage):
    found = BUILT_IN.departure(node("a", taints=(Taint(key=key, effect=effect, value="x"),)))
    assert (found and found.stage) is stage


@pytest.mark.parametrize(
    ("kind", "status", "stage"),
    [
        ("KernelDeadlock", "True", SUSPECT),
        ("KernelDeadlock", "False", None),
        ("VMEventScheduled", "True", SUSPECT),
        ("AcceleratedHardwareReady", "False", SUSPECT),
        ("AcceleratedHardwareReady", "True", None),
        ("Ready", "True", None),
    ],
)
def test_conditions(kind, status, stage):
    found = BUILT_IN.departure(with_condition(node("a"), kind, status))
    assert (found and found.stage) is stage


@pytest.mark.parametrize(
    ("labels", "stage"),
    [
        ({"nvidia.com/gpu-driver-upgrade-state": "drain-required"}, LEAVING),
        ({"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}, None),
        ({"cloud.google.com/active-node-maintenance": "ONGOING"}, LEAVING),
        ({}, None),
    ],
)
def test_labels(labels, stage):
    found = BUILT_IN.departure(node("a", labels=labels))
    assert (found and found.stage) is stage


def test_a_node_that_is_being_deleted_is_leaving():
    each = node("a")
    deleted = replace(each.metadata, deletion_timestamp=datetime(2027, 1, 1, tzinfo=UTC))
    found = BUILT_IN.departure(replace(each, metadata=deleted))
    assert found
    assert found.stage is LEAVING


def test_the_surest_of_several_counts():
    taints = (
        Taint(key="DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule"),
        Taint(key="node.kubernetes.io/out-of-service", effect="NoExecute"),
        Taint(key="karpenter.sh/disrupted", effect="NoSchedule"),
    )
    found = BUILT_IN.departure(node("a", taints=taints))
    assert found
    assert found.stage is LOST


def test_the_configuration_adds_to_the_table_or_replaces_it():
    text = "nodeDepartures: {moreSignals: [{label: power, values: [off-soon]}]}"
    signals = DepartureSignals.of(parse_configuration(text).node_departures.table)
    assert signals.departure(node("a", labels={"power": "off-soon"}))
    assert signals.departure(node("a", taints=(Taint(key="karpenter.sh/disrupted"),)))
    only = NodeDeparturesConfig(signals=(NodeSignal(label="power"),)).table
    assert not DepartureSignals.of(only).departure(
        node("a", taints=(Taint(key="karpenter.sh/disrupted"),))
    )


@pytest.mark.parametrize(
    "fields",
    [{}, {"taint": "a", "label": "b"}, {"label": "b", "effect": "NoSchedule"}, {"stage": "gone"}],
)
def test_a_signal_names_exactly_one_thing(fields):
    with pytest.raises(ValidationError):
        NodeSignal.model_validate(fields)
