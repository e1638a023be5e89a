"""Serves the webhooks until the process is told to end.

kopf answers the requests, and restarts its server when the certificate's files change; they are
kept equal to the Secret. While no replica answers, only defaults and early messages are lost: the
scheduler finds the same faults and reports them in conditions.

Their CA is published in the ``caBundle`` of both webhook configurations. These are created by
``kai-py install`` or the chart; where they are missing or not writable, the failure is logged and
the webhooks are served all the same.
"""

import asyncio
import base64
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import aiohttp.web
import kopf
from msgspec import Struct

from kai_py.admission.certificate import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    Certificate,
    CertificateError,
    ensure_certificate,
)
from kai_py.admission.handlers import MIRRORED, AdmissionContext, registry
from kai_py.api.admission import WEBHOOK_NAME
from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.record import Record
from kai_py.api.settings import WebhookConfig
from kai_py.config import Configuration
from kai_py.watch.client import Client, PatchType
from kai_py.watch.credentials import Credentials
from kai_py.watch.errors import ApiError
from kai_py.watch.mirror import Mirror
from kai_py.watch.resource import Kind, define_kind

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


log = logging.getLogger(__name__)
CHECK_SECONDS = 600.0
FILE_CHECK_SECONDS = 2.0
LOGIN_SECONDS = 300.0
MAX_REVIEW_BYTES = 8 << 20
"""The old and the new object, of 3 MiB each at most (the API server's limit of a request)."""
NOISY_LOGGERS = ("kopf.objects", "aiohttp.access")
"""Loggers of every request, which log refusals as errors."""


class CertificateFiles(Struct, frozen=True):
    """The certificate as files, which kopf reads."""

    directory: Path

    def write(self, made: Certificate) -> bool:
        """Write the files that changed; returns whether any did."""
        texts = {KEY: made.key, CERTIFICATE: made.served, AUTHORITY: made.authority}
        new = {name: text for name, text in texts.items() if self._read(name) != text}
        for name, text in new.items():
            path = self.directory / name
            path.touch(mode=0o600)
            path.write_bytes(text)
        return bool(new)

    def _read(self, name: str) -> bytes:
        with suppress(FileNotFoundError):
            return (self.directory / name).read_bytes()
        return b""


async def serve(client: Client, credentials: Credentials, configuration: Configuration) -> None:
    """Serve until SIGTERM or SIGINT. Raises CertificateError while there is no certificate."""
    settings = configuration.webhook
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    mirror = Mirror(client, MIRRORED)
    with tempfile.TemporaryDirectory(prefix="kai-py-") as directory:
        files = CertificateFiles(Path(directory))
        served = await ensure_certificate(client, settings)
        files.write(served)
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(mirror.run(), name="mirror"),
                group.create_task(
                    maintain_certificate(client, settings, files, served), name="certificate"
                ),
            ]
            await mirror.wait_synced()
            operator_registry = registry(AdmissionContext(client, mirror, configuration))
            _register_login(operator_registry, credentials)
            await kopf.operator(
                registry=operator_registry,
                settings=_settings(client, settings, files),
                clusterwide=True,
                standalone=True,
            )
            for task in background:
                task.cancel()


async def maintain_certificate(
    client: Client, settings: WebhookConfig, files: CertificateFiles, current: Certificate
) -> None:
    """Renew the Secret and keep the files equal to it, until cancelled."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        try:
            current = await ensure_certificate(client, settings, current)
            if files.write(current):
                log.info("the certificate was renewed")
            # Applying the manifests again removes the bundle.
            await publish_authority(client, current.authority)
        except (CertificateError, ApiError) as error:
            log.warning("certificate: %s; the previous certificate stays in use", error)


def _settings(
    client: Client, webhook: WebhookConfig, files: CertificateFiles
) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.admission.server = _PublishingServer(client, webhook, files)
    return settings


class _LargeReviewsServer(kopf.WebhookServer):
    """kopf's server, for reviews of the largest objects as well.

    aiohttp refuses bodies of more than 1 MiB, and an object whose review is refused is admitted.
    """

    @staticmethod
    async def _serve(handle: Any, request: aiohttp.web.Request) -> aiohttp.web.Response:
        large = request.clone(client_max_size=MAX_REVIEW_BYTES)
        return await kopf.WebhookServer._serve(handle, large)


class _PublishingServer(Struct, frozen=True):
    """kopf's server; every certificate is published before it is served."""

    client: Client
    settings: WebhookConfig
    files: CertificateFiles

    async def __call__(self, handle: Any) -> AsyncIterator[Any]:
        directory = self.files.directory
        server = _LargeReviewsServer(
            addr=self.settings.host,
            port=self.settings.port,
            certfile=directory / CERTIFICATE,
            pkeyfile=directory / KEY,
            cafile=directory / AUTHORITY,
            file_check_interval=FILE_CHECK_SECONDS,
        )
        async for served in server(partial(handle, memories=_NoMemory())):
            await publish_authority(self.client, (directory / AUTHORITY).read_bytes())
            log.info("webhooks are served on port %d", self.settings.port)
            yield served


class _NoMemory:
    """In place of kopf's memory of every object whose change it reviews, which only grows."""

    async def recall_memo(self, *_: object, **__: object) -> kopf.Memo:
        return kopf.Memo()


def _register_login(found: kopf.OperatorRegistry, credentials: Credentials) -> None:
    """Log kopf in with our credentials; it does so again when a token may have expired."""

    @kopf.on.login(registry=found)
    async def log_in(**_: Any) -> kopf.AiohttpSession:
        access = await asyncio.to_thread(credentials.load)
        headers = {"Authorization": access.authorization} if access.authorization else {}
        tls = access.tls or ssl.create_default_context()
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls), headers=headers, proxy=access.proxy or None
        )
        expiration = datetime.now(UTC) + timedelta(seconds=LOGIN_SECONDS)
        return kopf.AiohttpSession(
            server=access.server, aiohttp_session=session, expiration=expiration
        )
