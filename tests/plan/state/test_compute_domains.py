"""Pods that claim channels of a ComputeDomain stay within one NVLink clique."""

from kai_py.api.records.resource import DeviceClass, ResourceClaim, ResourceSlice
from kai_py.api.records.resource_versions import from_json
from kai_py.plan.plan import Action, Stage
from kai_py.plan.state.claims import CLIQUE, DRIVER
from tests.support.scenario import claiming, cluster, job, node, placed, pod, queue

CHANNELS = f"compute-domain-default-channel.{DRIVER}"


def channel_class():
    cel = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "channel"'
    spec = {"selectors": [{"cel": {"expression": cel}}]}
    return from_json(DeviceClass, {"metadata": {"name": CHANNELS}, "spec": spec})


def rack(letter, *names):
    """Nodes of a clique, each with GPUs and its one channel."""
    for name in names:
        yield node(name, 4, labels={CLIQUE: letter})
        device = {"name": "channel-0", "attributes": {"type": {"string": "channel"}}}
        spec = {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [device],
        }
        yield from_json(ResourceSlice, {"metadata": {"name": f"{name}-channels"}, "spec": spec})


def domain(name, pods, **options):
    """A Job of pods with a channel each."""
    owner = job(name, pods, "team")
    yield owner
    for i in range(pods):
        each = f"{name}-{i}"
        reference = {"kind": "Pod", "name": each, "uid": f"pod-{each}", "controller": True}
        meta = {"name": each, "namespace": "default", "uid": each, "ownerReferences": [reference]}
        request = {"name": "channel", "exactly": {"deviceClassName": CHANNELS}}
        spec = {"devices": {"requests": [request]}}
        yield from_json(ResourceClaim, {"metadata": meta, "spec": spec})
        yield claiming(pod(each, 1, owner=owner, **options), each)


def world(*given, **settings):
    racks = [*rack("a", "n0", "n1"), *rack("b", "n2", "n3", "n4")]
    return cluster(channel_class(), queue("team", 100), *racks, *given, **settings)


def test_a_gang_with_channels_takes_the_clique_that_holds_it():
    plan = world(*domain("train", 3)).plan()
    assert sorted(placed(plan).values()) == ["n2", "n3", "n4"]


def test_it_waits_for_a_clique_rather_than_lie_across_two():
    busy = [pod(f"busy-{i}", 4, queue="team", node=f"n{i}") for i in (1, 4)]
    plan = world(*busy, *domain("train", 3), actions=(Action.ALLOCATE,)).plan()
    assert placed(plan) == {}
    assert [each.stage for each in plan.unplaced] == [Stage.TOPOLOGY]


def test_a_gang_of_more_channels_than_any_clique_has_nodes_prefers_one():
    assert len(placed(world(*domain("train", 4)).plan())) == 4


def test_gangs_without_channels_go_anywhere():
    owner = job("plain", 5, "team")
    pods = [pod(f"plain-{i}", 4, owner=owner) for i in range(5)]
    assert len(placed(world(owner, *pods).plan())) == 5
