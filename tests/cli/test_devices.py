"""kai-py devices against a cluster."""

import asyncio
import json

import pytest

from kai_py.api.crd import crds
from kai_py.api.records.record import convert_record
from kai_py.api.records.resource_admin import ResourcePoolStatusRequest
from kai_py.cli import devices
from kai_py.cli.devices import latest_reports, report_cells
from kai_py.cli.errors import CommandError
from kai_py.cli.output import Output
from kai_py.dra.explain.device_list import DeviceEntry, DeviceStatus, Holder
from kai_py.embedded.cluster import EmbeddedCluster

SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "node-0-gpus"},
    "spec": {
        "driver": "gpu.nvidia.com",
        "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "node-0",
        "devices": [
            {"name": f"gpu-{i}", "attributes": {"productName": {"string": "H100"}}}
            for i in range(2)
        ],
    },
}


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [["node-0", f"gpu-{i}", "Free", "H100", "-", "-", "-", "-"] for i in range(2)]),
        ({"by": devices.Grouping.PRODUCT}, [["H100", "2", "2", "0", "0", "0"]]),
        ({"output": Output.NAME}, [["gpu.nvidia.com/node-0/gpu-1"]]),
        (
            {"output": Output.WIDE, "node": "node-0", "tree": True},
            [
                ["node-0", "gpu.nvidia.com", "node-0", "-", f"gpu-{i}", "Free", "H100", *"----"]
                for i in range(2)
            ],
        ),
    ],
)
def test_devices_are_listed_and_counted(capsys, tmp_path, options, expected):
    out = run(lambda path: devices.command(kubeconfig=path, **options), capsys, tmp_path)
    assert [line.split() for line in out.splitlines()[1:]] == expected


@pytest.mark.cluster
def test_json_has_every_field(capsys, tmp_path):
    out = run(lambda path: devices.command(kubeconfig=path, output=Output.JSON), capsys, tmp_path)
    first = json.loads(out)[0]
    assert (first["node"], first["device"], first["status"]) == ("node-0", "gpu-0", "Free")
    assert first["claims"] == []


def run(call, capsys, tmp_path):
    async def scene():
        async with EmbeddedCluster() as cluster:
            cluster.create_all(crds().values())
            cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}})
            cluster.create(SLICE)
            path = tmp_path / "kubeconfig"
            cluster.write_kubeconfig(path)
            await asyncio.to_thread(call, str(path))

    asyncio.run(scene())
    return capsys.readouterr().out


@pytest.mark.cluster
def test_a_node_that_there_is_not_is_refused(capsys, tmp_path):
    with pytest.raises(CommandError, match="--node elsewhere: not found"):
        run(lambda path: devices.command(kubeconfig=path, node="elsewhere"), capsys, tmp_path)


def asked(time, *pools, status="True"):
    complete = {"type": "Complete", "status": status, "lastTransitionTime": time}
    document = {"status": {"conditions": [complete], "pools": list(pools)}}
    return convert_record(document, ResourcePoolStatusRequest)


def reported(total, allocated, name="n0"):
    return {
        "driver": "gpu.nvidia.com",
        "poolName": name,
        "totalDevices": total,
        "allocatedDevices": allocated,
    }


def test_the_latest_report_of_a_pool_is_compared_with_what_is_known():
    incomplete = {"driver": "gpu.nvidia.com", "poolName": "n1", "validationError": "is incomplete"}
    reports = latest_reports(
        [
            asked("2026-05-01T10:00:00Z", reported(2, 2), incomplete),
            asked("2026-05-01T09:00:00Z", reported(9, 9)),
            asked("2026-05-01T11:00:00Z", reported(9, 9), status="False"),
        ]
    )
    share = Holder("default/c", (), "", "", {}, admin_access=False)
    first = ("n0", "gpu.nvidia.com", "n0", "gpu-0", "", "", "")
    entries = [
        DeviceEntry(*first, DeviceStatus.SHARED, "", (share, share)),
        DeviceEntry("n0", "gpu.nvidia.com", "n0", "gpu-1", "", "", "", DeviceStatus.FREE, "", ()),
    ]
    when = "at 2026-05-01 10:00:00 UTC"
    assert report_cells(reports, entries) == {
        "gpu.nvidia.com/n0": f"2 devices, 2 results {when}",
        "gpu.nvidia.com/n1": f"is incomplete {when}",
    }
    cells = report_cells(reports, entries[:1])
    assert cells["gpu.nvidia.com/n0"].endswith("; now 1 device, 2 results")
