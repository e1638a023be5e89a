"""A real API server whose proxy for Services reaches addresses of pods, all of them on loopback.

The API server's own network is replaced by an egress selector: what it sends to a pod goes to a
socket of this process, which connects to the same port on loopback. So nothing listens elsewhere.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.cluster.controlplane import ControlPlane, control_plane

SOCKET = "pods.sock"
CONFIGURATION = "egress.json"


def _egress(path: Path) -> dict[str, object]:
    transport = {"uds": {"udsName": str(path)}}
    connection = {"proxyProtocol": "HTTPConnect", "transport": transport}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }


@asynccontextmanager
async def plane_with_service_proxy(directory: Path) -> AsyncIterator[ControlPlane]:
    """A control plane of its own for the duration of the block."""
    configuration = directory / CONFIGURATION
    configuration.write_text(json.dumps(_egress(directory / SOCKET)))
    server = await asyncio.start_unix_server(_forward, directory / SOCKET)
    flags = {"egress-selector-config-file": configuration}
    opening = control_plane(directory / "plane", apiserver_flags=flags)
    plane = await asyncio.to_thread(opening.__enter__)
    try:
        async with server:
            yield plane
    finally:
        await asyncio.to_thread(opening.__exit__, None, None, None)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    request = (await reader.readuntil(b"\r\n\r\n")).decode()
    address = request.split()[1]
    with suppress(OSError):
        there = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))
    writer.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while part := await source.read(65536):
            target.write(part)
            await target.drain()
    target.close()


async def ready_endpoint(api, namespace: str, name: str, port: int) -> None:
    """A ready pod that the Service ``name`` selects, with its port on loopback."""
    selected = {"app.kubernetes.io/name": name}
    service = f"/api/v1/namespaces/{namespace}/services/{name}"
    ports = [{"name": "http", "port": port, "targetPort": port}]
    await api.patch(service, {"spec": {"ports": ports}})
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "of-the-scheduler"}}
    await api.create(node)
    container = {"name": "scheduler", "image": "none"}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    await api.post(
        pods,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "scheduler", "labels": selected},
            "spec": {"nodeName": "of-the-scheduler", "containers": [container]},
        },
    )
    address = "10.1.2.3"
    status = {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    await api.patch(f"{pods}/scheduler/status", {"status": status})
