"""Keep N alike nodes alive from a process of their own, until it is ended.

Prints one line when all nodes are ready for pods.
"""

import argparse
import asyncio
from pathlib import Path

from tests.cluster.fake_kubelet import FakeKubelet, gpu_nodes
from tests.support.cluster.api import Api


async def serve(options: argparse.Namespace) -> None:
    """Register the nodes and run their pods."""
    nodes = gpu_nodes(
        options.nodes,
        prefix=options.prefix,
        published_gpus=options.published_gpus,
        plugin_gpus=options.plugin_gpus,
    )
    async with (
        Api(options.kubeconfig) as api,
        FakeKubelet(api, nodes, heartbeat_seconds=options.heartbeat_seconds),
    ):
        print(f"{options.nodes} nodes ready", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--prefix", default="node")
    parser.add_argument("--published-gpus", type=int, default=0, help="devices in ResourceSlices")
    parser.add_argument("--plugin-gpus", type=int, default=0, help="nvidia.com/gpu of each node")
    parser.add_argument("--heartbeat-seconds", type=float, default=10.0)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
