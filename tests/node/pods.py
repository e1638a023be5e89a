"""What kubelets say of pods, and containers of themselves."""

import json
from typing import Any

from tests.node.node import Node
from tests.node.workloads import TOLD_ALL
from tests.support.cluster.eventually import eventually
from tests.support.cluster.view import View

Containers = dict[str, list[tuple[str, int]]]
Environments = dict[str, dict[str, str]]


async def running(
    view: View, prefix: str, count: int, *, phase: str = "Running", within: float = 60.0
) -> None:
    """Wait until so many pods are in the phase."""

    async def reached() -> bool:
        found = [pod["status"]["phase"] for pod in await view.pods(prefix)]
        assert found.count(phase) == count, f"{found}: {await view.say(prefix)}"
        return True

    await eventually(reached, within=within)


async def containers(view: View, prefix: str) -> Containers:
    """Containers and how often they restarted by pod: those that go on are the same."""
    return {
        pod["metadata"]["name"]: [
            (each["containerID"], each["restartCount"])
            for each in pod["status"]["containerStatuses"]
        ]
        for pod in await view.pods(prefix)
    }


async def environment(node: Node, pod: str, container: str = "main") -> dict[str, str]:
    """The environment of a container, as soon as it has told all of it."""

    async def told() -> list[str]:
        try:
            lines = node.output_of(pod, container).splitlines()
        except FileNotFoundError:
            return []
        return lines[: lines.index(TOLD_ALL)]

    lines = await eventually(told, within=20.0, what=f"the environment of {pod}")
    return dict(line.split("=", 1) for line in lines)


async def environments(
    nodes: dict[str, Node], view: View, prefix: str
) -> dict[str, dict[str, str]]:
    """The environments of all bound pods by name."""
    bound = await view.bound(prefix)
    return {name: await environment(nodes[node], name) for name, node in bound.items()}


def told(variables: dict[str, str]) -> list[dict[str, Any]]:
    """What the driver `parts.kai.test` told a container of its devices."""
    return [json.loads(value) for name, value in variables.items() if name.startswith("DEVICE_")]
