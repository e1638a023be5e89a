"""``kai-py reserve-gpu``: what a reservation pod runs; it reports which GPU it was given."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping

from kai_py.api.gpu_reservation import RESERVED_GPU, VISIBLE_DEVICES
from kai_py.cli.connection import cluster_client
from kai_py.cli.errors import CommandError
from kai_py.cli.output import say
from kai_py.watch.client import Client
from kai_py.watch.errors import ApiError
from kai_py.watch.kinds import PODS

UUID_PREFIXES = ("GPU-", "MIG-")
LISTING = ("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")
LISTING_SECONDS = 30.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0


def command() -> None:
    """Write the UUID of the GPU of this pod into its annotation, and keep the GPU until SIGTERM."""
    uuid = given_gpu(os.environ)
    try:
        pod, namespace = os.environ["POD_NAME"], os.environ["POD_NAMESPACE"]
    except KeyError as missing:
        raise CommandError(f"the environment variable {missing} is not set") from None
    asyncio.run(_keep(uuid, pod, namespace))


def given_gpu(environment: Mapping[str, str]) -> str:
    """The UUID of the one GPU of this container.

    The device plugin names it in the environment or, where it uses CDI, leaves only that GPU
    visible. Raises CommandError.
    """
    named = environment.get(VISIBLE_DEVICES, "")
    uuids = [named] if named.startswith(UUID_PREFIXES) else _visible_gpus()
    if len(uuids) != 1 or "," in uuids[0]:
        raise CommandError(f"one GPU is expected in this container, not {', '.join(uuids)}")
    return uuids[0]


def _visible_gpus() -> list[str]:
    try:
        listed = subprocess.run(
            LISTING, capture_output=True, text=True, check=True, timeout=LISTING_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CommandError(
            f"{VISIBLE_DEVICES} names no GPU, and {LISTING[0]} fails: {error}",
            hint="the container needs NVIDIA's runtime: gpuSharing.runtimeClass",
        ) from error
    return listed.stdout.split()


async def _keep(uuid: str, pod: str, namespace: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with cluster_client("", "") as client:
        writing = asyncio.create_task(_write(client, uuid, pod, namespace))
        await stop.wait()
        writing.cancel()


async def _write(client: Client, uuid: str, pod: str, namespace: str) -> None:
    """Write the annotation, until that has succeeded."""
    pause = FIRST_PAUSE
    while True:
        try:
            body = {"metadata": {"annotations": {RESERVED_GPU: uuid}}}
            await client.patch(PODS.at(), pod, body, namespace=namespace)
        except ApiError as error:
            say(f"{namespace}/{pod}: {error}; tried again in {pause:g} s", err=True)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        else:
            say(f"{namespace}/{pod} keeps {uuid}")
            return
