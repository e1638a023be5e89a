"""The webhooks' TLS certificate, kept in a Secret.

All replicas serve the Secret's certificate. With ``selfManaged`` it is created, self-signed, by the
first replica that finds none, and renewed when a third of its time is left; ``ca.crt`` then keeps
the previous one, so that replicas that still serve that are trusted meanwhile. A deleted Secret is
created again from the served certificate; one that cannot be served gets a new certificate. Keys
are made by the program ``openssl``. Otherwise another tool writes the Secret, of type
kubernetes.io/tls.
"""

import asyncio
import base64
import ipaddress
import logging
import ssl
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from kai_py.api.admission import WEBHOOK_NAME
from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.record import Record
from kai_py.api.settings import WebhookConfig
from kai_py.watch.client import Client
from kai_py.watch.errors import AlreadyExists, Conflict, NotFound
from kai_py.watch.resource import define_kind

log = logging.getLogger(__name__)
VALID_DAYS = 365
RENEW_SECONDS = VALID_DAYS * 24 * 3600 // 3
OPENSSL_SECONDS = 60
CERTIFICATE, KEY, AUTHORITY = "tls.crt", "tls.key", "ca.crt"


class CertificateError(Exception):
    """There is no certificate to serve; the message names the remedy."""


class Secret(Record, frozen=True):
    """v1 Secret; values in base64."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = msgspec.field(default_factory=dict)


SECRETS = define_kind(Secret, "Secret", "secrets", "v1").at()


class Certificate(Struct, frozen=True):
    """PEM texts: the served certificate, its key, and the authorities that clients trust."""

    served: bytes
    key: bytes
    authority: bytes


def issue(names: Sequence[str], previous: bytes = b"") -> Certificate:
    """Create a certificate for ``names``; ``previous`` is trusted too. Raises CertificateError.

    Blocks for some milliseconds.
    """
    with tempfile.TemporaryDirectory() as directory:
        key, served = Path(directory, KEY), Path(directory, CERTIFICATE)
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-noenc", "-days", str(VALID_DAYS), "-subj", f"/CN={names[0][:64]}"),
            *("-addext", "subjectAltName=" + ",".join(map(_alternative_name, names))),
            *("-keyout", str(key), "-out", str(served)),
        )
        pem = served.read_bytes()
        # Both are trusted until every replica serves the new one.
        return Certificate(pem, key.read_bytes(), pem + previous)


def expires_soon(certificate: bytes) -> bool:
    """Whether a certificate is due for renewal, or invalid. Blocks for some milliseconds."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate)
        file.flush()
        within = str(RENEW_SECONDS)
        return not _succeeds("x509", "-checkend", within, "-noout", "-in", file.name)


async def ensure_certificate(
    client: Client, settings: WebhookConfig, current: Certificate | None = None
) -> Certificate:
    """The Secret's certificate, created or renewed if it is self-managed.

    ``current``: the certificate that this replica serves already. Raises CertificateError,
    ApiError.
    """
    try:
        secret = await client.get(SECRETS, WEBHOOK_NAME, namespace=settings.namespace)
    except NotFound:
        if not settings.self_managed:
            secret_name = f"Secret {settings.namespace}/{WEBHOOK_NAME}"
            text = f"{secret_name} does not exist: create it, of type kubernetes.io/tls"
            raise CertificateError(text) from None
        return await _create(client, settings, current)
    try:
        found = await asyncio.to_thread(_read, secret)
    except CertificateError as error:
        if not settings.self_managed:
            raise
        log.warning("%s; replaced by a new certificate", error)
        return await _renew(client, settings, secret, b"")
    if not settings.self_managed or not await asyncio.to_thread(expires_soon, found.served):
        return found
    return await _renew(client, settings, secret, found.served)


async def _create(
    client: Client, settings: WebhookConfig, current: Certificate | None
) -> Certificate:
    certificate = await asyncio.to_thread(issue, _names(settings)) if current is None else current
    body = {"type": "kubernetes.io/tls", "data": _data(certificate)}
    metadata = {"name": WEBHOOK_NAME, "namespace": settings.namespace}
    try:
        await client.create(SECRETS, {"metadata": metadata, **body}, namespace=settings.namespace)
    except AlreadyExists:  # another replica was first
        return await ensure_certificate(client, settings)
    return certificate


async def _renew(
    client: Client, settings: WebhookConfig, secret: Secret, previous: bytes
) -> Certificate:
    certificate = await asyncio.to_thread(issue, _names(settings), previous=previous)
    preconditions = {"metadata": {"resourceVersion": secret.metadata.resource_version}}
    body = {**preconditions, "data": _data(certificate)}
    try:
        await client.patch(SECRETS, WEBHOOK_NAME, body, namespace=settings.namespace)
    except Conflict:  # another replica was first
        return await ensure_certificate(client, settings)
    return certificate


def _read(secret: Secret) -> Certificate:
    """The certificate in a Secret; raises CertificateError. Blocks for some milliseconds."""
    secret_name = f"Secret {secret.metadata.namespace}/{secret.metadata.name}"
    missing = [name for name in (CERTIFICATE, KEY) if not secret.data.get(name)]
    if missing:
        text = (
            f"{secret_name} has no {' and no '.join(missing)}: it must be of type kubernetes.io/tls"
        )
        raise CertificateError(text)
    served, key = (base64.b64decode(secret.data[name]) for name in (CERTIFICATE, KEY))
    authority = secret.data.get(AUTHORITY)
    found = Certificate(served, key, base64.b64decode(authority) if authority else served)
    _check(found, secret_name)
    return found


def _check(found: Certificate, place: str) -> None:
    """Check that certificate and key are PEM and match; raises CertificateError."""
    with tempfile.TemporaryDirectory() as directory:
        served, key = Path(directory, CERTIFICATE), Path(directory, KEY)
        served.write_bytes(found.served)
        key.write_bytes(found.key)
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(served, key)
        except ssl.SSLError as error:
            text = f"{place}: {CERTIFICATE} and {KEY} are not a certificate and its key in PEM"
            raise CertificateError(f"{text}: {error.reason or error}") from None


def _data(made: Certificate) -> dict[str, str]:
    texts = {CERTIFICATE: made.served, KEY: made.key, AUTHORITY: made.authority}
    return {name: base64.b64encode(text).decode() for name, text in texts.items()}


def _names(settings: WebhookConfig) -> tuple[str, ...]:
    service = f"{WEBHOOK_NAME}.{settings.namespace}.svc"
    return (service, f"{service}.cluster.local", *settings.names)


def _alternative_name(name: str) -> str:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return f"DNS:{name}"
    return f"IP:{name}"


def _openssl(*arguments: str) -> None:
    result = _run(*arguments)
    if result.returncode != 0:
        raise CertificateError(f"openssl {arguments[0]}: {result.stderr.decode().strip()}")


def _succeeds(*arguments: str) -> bool:
    return _run(*arguments).returncode == 0


def _run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["openssl", *arguments], capture_output=True, check=False, timeout=OPENSSL_SECONDS
        )
    except FileNotFoundError:
        text = "openssl is required to create certificates: install it, or set "
        raise CertificateError(text + "webhook.selfManaged: false and create the Secret") from None
