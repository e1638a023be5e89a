"""Gangs that run, and whose group can no longer be read: they stay whole."""

import pytest

from tests.support.admitted_work import bind, groups, marks, pod, world
from tests.support.cluster.api import Document
from tests.support.poison.process import Process

GROUPED = ("kai", "plugin", "volcano", "native", "composite", "template", "grove")


def evictions(process: Process, due: int) -> list[str]:
    process.put(*(pod(f"due-{n}", "owner") for n in range(due)))
    return sorted(each.pod.name for each in process.cycle().evictions)


def group_of(way: str) -> list[Document]:
    return [each for each in groups() if each["metadata"]["name"] in (way, "above")]


@pytest.mark.parametrize("way", GROUPED)
@pytest.mark.parametrize("restart", [False, True])
def test_a_gang_without_its_group_is_evicted_whole(way, restart):
    """The CRD of the groups is uninstalled, or the tenant deletes the group."""
    process = Process()
    process.put(*world(), *group_of(way))
    running = bind(process, [pod(f"{way}-{n}", "mine", **marks(way)) for n in range(2)])
    filler = bind(process, [pod(f"filler-{n}", "owner") for n in range(22)])
    process.remove(*group_of(way))
    if restart:
        process = Process()
        process.put(*world(), *running, *filler)
    assert evictions(process, 1) == [f"{way}-0", f"{way}-1"]


def test_elastic_pods_of_a_gang_without_its_group_are_evicted_alone():
    process = Process()
    group = group_of("kai")
    process.put(*world(), *group)
    bind(process, [pod(f"kai-{n}", "mine", **marks("kai")) for n in range(3)])
    bind(process, [pod(f"filler-{n}", "owner") for n in range(21)])
    process.remove(*group)
    assert len(evictions(process, 1)) == 1


def test_a_gang_that_lost_pods_with_its_group_is_not_stale():
    """Nothing says that it still needs the pod that is gone."""
    process = Process()
    group = group_of("kai")
    process.put(*world(), *group)
    running = bind(process, [pod(f"kai-{n}", "mine", **marks("kai")) for n in range(2)])
    process.remove(*group)
    process.cycle()
    process.remove(running[0])
    process.now += 1_000_000.0
    assert not process.cycle().evictions
