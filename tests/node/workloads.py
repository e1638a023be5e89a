"""What do tests on real nodes submit? Pods of busybox that tell their environment."""

from collections.abc import Mapping
from typing import Any

from tests.node.image import IMAGE
from tests.support.cluster.api import Document
from tests.support.cluster.manifests import SCHEDULER

DRIVER = "gpu.example.com"
PARTS = "parts.kai.test"
TOLD_ALL = "."
TELL = f"env; echo {TOLD_ALL}"
"""Prints the environment, where CDI puts what a driver prepared."""
SERVE = f"trap 'echo bye; exit 143' TERM; {TELL}; while true; do sleep 0.1; done"
"""Runs until it is asked to end, says so and fails, as unfinished work does."""
STAY = f"trap '' TERM; {TELL}; while true; do sleep 0.1; done"
"""Runs until it is killed."""
TOLD = "/var/log/told"
"""A directory of the node: containers write into files POD.CONTAINER there, which outlive them."""


def device_class(driver: str) -> Document:
    """The class of all devices of a driver, named like it."""
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": driver},
        "spec": {"selectors": [selector]},
    }


def container(script: str, *claims: str, name: str = "main", **fields: Any) -> Document:
    """A container that runs a shell script and has the claims of these names."""
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", f"exec >> {TOLD}/$POD.{name} 2>&1; {script}"],
        "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "volumeMounts": [{"name": "told", "mountPath": TOLD}],
        "resources": {"claims": [{"name": each} for each in claims]},
    } | fields


def pod_spec(
    script: str = TELL, *, templates: Mapping[str, str] | None = None, **spec: Any
) -> Document:
    """A pod of one container with claims from templates, by the names of the claims."""
    sources = templates or {}
    claims = [{"name": n, "resourceClaimTemplateName": t} for n, t in sources.items()]
    return {
        "schedulerName": SCHEDULER,
        "restartPolicy": "Never",
        "hostNetwork": True,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 2,
        "containers": [container(script, *sources)],
        "resourceClaims": claims,
        "volumes": [{"name": "told", "hostPath": {"path": TOLD, "type": "Directory"}}],
    } | spec


def template(name: str, *requests: Document, **devices: Any) -> Document:
    """A template of claims with these requests."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": list(requests)} | devices}},
    }


def request(driver: str = DRIVER, *, name: str = "gpu", **exactly: Any) -> Document:
    """A request for devices of a driver, for one unless told."""
    return {"name": name, "exactly": {"deviceClassName": driver} | exactly}


def parts(*devices: Document, pool: str, counters: tuple[Document, ...] = ()) -> Document:
    """What the driver `parts.kai.test` offers: one pool, counter sets in a slice of their own."""
    slices: list[Document] = [{"Devices": list(devices)}]
    if counters:
        slices.append({"SharedCounters": list(counters)})
    return {"Pools": {pool: {"Slices": slices}}}
