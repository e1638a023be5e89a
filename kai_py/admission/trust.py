"""Publishes the webhooks' CA: the ``caBundle`` of both webhook configurations.

The configurations are created by ``kai-py install`` or the chart; where they are missing or not
writable, the failure is logged and the webhooks are served all the same.
"""

import base64
import logging
from typing import Any

from kai_py.api.admission import WEBHOOK_NAME
from kai_py.api.records.core import ObjectMeta, Record
from kai_py.watch.client import Client, PatchType
from kai_py.watch.errors import ApiError
from kai_py.watch.resource import Kind, define_kind

log = logging.getLogger(__name__)
GROUP = "admissionregistration.k8s.io"


class WebhookConfiguration(Record, frozen=True):
    """admissionregistration.k8s.io/v1, either kind."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[dict[str, Any], ...] = ()


MUTATING, VALIDATING = (
    define_kind(
        WebhookConfiguration,
        f"{verb}WebhookConfiguration",
        f"{verb.lower()}webhookconfigurations",
        "v1",
        group=GROUP,
        namespaced=False,
    )
    for verb in ("Mutating", "Validating")
)


async def publish_authority(client: Client, authority: bytes) -> None:
    """Write ``authority`` (PEM) into both webhook configurations."""
    bundle = base64.b64encode(authority).decode()
    for kind in (MUTATING, VALIDATING):
        try:
            await _write(client, kind, bundle)
        except ApiError as error:
            log.warning(
                "%s %s does not have the webhook's certificate: %s", kind.name, WEBHOOK_NAME, error
            )


async def _write(client: Client, kind: Kind[WebhookConfiguration], bundle: str) -> None:
    resource = kind.at()
    found = await client.get(resource, WEBHOOK_NAME)
    changes = [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
        for index, each in enumerate(found.webhooks)
        if each["clientConfig"].get("caBundle") != bundle
    ]
    if changes:
        version = found.metadata.resource_version
        precondition = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        await client.patch(
            resource, WEBHOOK_NAME, [precondition, *changes], patch_type=PatchType.JSON
        )
        log.info("%s %s has the webhook's certificate", kind.name, WEBHOOK_NAME)
