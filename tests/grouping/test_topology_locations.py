"""Where a segment size was read, for messages: the nearest place that has it."""

from types import SimpleNamespace

import pytest

from kai_py.api.records.core import ObjectMeta
from kai_py.grouping.topology_annotations import _location_of

KEY = "kai.scheduler/segment-size"


def link(kind, **meta):
    found = SimpleNamespace(metadata=ObjectMeta(name="w", uid="w", **meta))
    return SimpleNamespace(kind=SimpleNamespace(kind=kind), found=found)


@pytest.mark.parametrize(
    ("template", "own", "above", "location"),
    [
        ({KEY: "2"}, {"annotations": {KEY: "2"}}, {}, f"spec.template: {KEY}"),
        ({}, {"annotations": {KEY: "2"}}, {}, f"metadata.annotations: {KEY}"),
        ({}, {"labels": {KEY: "2"}}, {}, f"metadata.labels: {KEY}"),
        ({}, {"labels": {KEY: "2"}, "annotations": {KEY: "3"}}, {}, f"metadata.annotations: {KEY}"),
        ({}, {}, {"annotations": {KEY: "2"}}, f"Above w: metadata.annotations: {KEY}"),
        ({}, {}, {"labels": {KEY: "2"}}, f"Above w: metadata.labels: {KEY}"),
        (
            {},
            {"labels": {"other": "2"}},
            {"labels": {KEY: "2"}},
            f"Above w: metadata.labels: {KEY}",
        ),
        ({}, {}, {}, KEY),
    ],
)
def test_the_location_of_a_size_is_the_nearest_that_has_it(template, own, above, location):
    workload = SimpleNamespace(link=link("Job", **own), above=(link("Above", **above),))
    assert _location_of(KEY, workload, [("spec.template", template)]) == location
