"""What reads prove of the pods of a group: only what is known of all of them counts."""

from types import SimpleNamespace

import pytest

from kai_py.api.records.core import ObjectMeta, Pod, PodSchedulingGroup, PodSpec, PodStatus
from kai_py.api.references import GroupRef
from kai_py.commit import pod_state
from kai_py.commit.pod_state import PodReading, ReadState, fence_group
from kai_py.watch.errors import from_response

GONE, WAITING = ReadState.GONE, ReadState.WAITING
BOUND, UNKNOWN = ReadState.BOUND, ReadState.UNKNOWN


def pod(name, *, group="g", node="", phase="Pending"):
    spec = PodSpec(node_name=node, scheduling_group=PodSchedulingGroup(pod_group_name=group))
    meta = ObjectMeta(name=name, namespace="ns", uid=name)
    return Pod(metadata=meta, spec=spec, status=PodStatus(phase=phase))


@pytest.mark.parametrize(
    ("read", "state"),
    [
        ({}, WAITING),
        ({"a": WAITING, "b": WAITING}, WAITING),
        ({"a": GONE, "b": WAITING}, WAITING),
        ({"a": WAITING, "b": UNKNOWN}, UNKNOWN),
        ({"a": GONE, "b": BOUND}, BOUND),
    ],
)
async def test_a_group_is_unused_only_if_every_pod_that_waits_is(monkeypatch, read, state):
    fenced = []

    async def fence_pod(_access, ref):
        fenced.append(ref.name)
        return PodReading(read[ref.name])

    async def call(request):
        return await request()

    async def listed(_resource, *, namespace):
        done = pod("done", node="n", phase="Succeeded")
        others = [pod("other", group="h", node="n"), pod("other-waits", group="h"), done]
        return SimpleNamespace(items=[*others, *map(pod, read)], namespace=namespace)

    monkeypatch.setattr(pod_state, "fence_pod", fence_pod)
    access = SimpleNamespace(call=call, client=SimpleNamespace(list=listed), pods=None)
    assert (await fence_group(access, GroupRef("ns", "g", "u"))).state is state
    assert fenced == [*read]


async def test_nothing_is_known_of_a_group_whose_pods_cannot_be_listed():
    async def call(_request):
        raise from_response("list", 503, b"{}", {})

    access = SimpleNamespace(call=call)
    assert (await fence_group(access, GroupRef("ns", "g", "u"))).state is UNKNOWN
