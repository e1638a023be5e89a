"""A certificate is made once, shared, and renewed in time; the one before stays trusted."""

import base64
import ssl
import subprocess

import pytest

from kai_py.admission import certificate
from kai_py.admission.certificate import (
    SECRETS,
    CertificateError,
    ensure_certificate,
    expires_soon,
    issue,
)
from kai_py.api.admission import WEBHOOK_NAME
from kai_py.api.settings import WebhookConfig
from kai_py.watch.errors import AlreadyExists

OURS = WebhookConfig(namespace="default", names=("127.0.0.1",))
THEIRS = WebhookConfig(namespace="default", self_managed=False)


def test_a_certificate_is_for_its_names_and_young(tmp_path):
    made = issue(("host.example", "127.0.0.1"))
    path = tmp_path / "tls.crt"
    path.write_bytes(made.served)
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in", path],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "DNS:host.example, IP Address:127.0.0.1" in shown
    (tmp_path / "tls.key").write_bytes(made.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, tmp_path / "tls.key")
    assert not expires_soon(made.served)
    assert expires_soon(b"no certificate")


async def test_replicas_share_what_the_first_has_made(client):
    assert await ensure_certificate(client, OURS) == await ensure_certificate(client, OURS)


async def test_it_is_renewed_and_the_old_one_trusted(client, monkeypatch):
    first = await ensure_certificate(client, OURS)
    monkeypatch.setattr(certificate, "RENEW_SECONDS", 400 * 24 * 3600)
    second = await ensure_certificate(client, OURS)
    assert second.served != first.served
    assert second.authority == second.served + first.served


async def write(client, **data):
    """The Secret, with these values."""
    encoded = {name.replace("_", "."): base64.b64encode(text) for name, text in data.items()}
    body = {"data": {name: text.decode() for name, text in encoded.items()}}
    metadata = {"name": WEBHOOK_NAME, "namespace": "default"}
    try:
        await client.create(SECRETS, {"metadata": metadata, **body}, namespace="default")
    except AlreadyExists:
        await client.patch(SECRETS, WEBHOOK_NAME, body, namespace="default")


async def test_a_secret_of_others_is_taken_as_it_is(client):
    with pytest.raises(CertificateError, match="Secret default/kai-py-webhook does not exist"):
        await ensure_certificate(client, THEIRS)
    made = issue(("host.example",))
    await write(client, tls_crt=made.served)
    with pytest.raises(CertificateError, match=r"has no tls.key: it must be of type kubernetes.io"):
        await ensure_certificate(client, THEIRS)
    await write(client, tls_key=made.key)
    found = await ensure_certificate(client, THEIRS)
    assert (found.served, found.key, found.authority) == (made.served, made.key, made.served)


GARBAGE = {
    "no certificate": (b"\xff", issue(("a",)).key),
    "no key": (issue(("a",)).served, b"garbage"),
    "another key": (issue(("a",)).served, issue(("a",)).key),
}


@pytest.mark.parametrize(("served", "key"), GARBAGE.values(), ids=GARBAGE)
async def test_a_secret_that_cannot_be_served_is_told_or_replaced(client, caplog, served, key):
    await write(client, tls_crt=served, tls_key=key)
    text = "Secret default/kai-py-webhook: tls.crt and tls.key are not a certificate and its key"
    with pytest.raises(CertificateError, match=text):
        await ensure_certificate(client, THEIRS)
    found = await ensure_certificate(client, OURS)
    assert found.authority == found.served != served
    assert await ensure_certificate(client, OURS) == found
    (told,) = caplog.messages
    assert text in told
    assert "replaced by a new certificate" in told


async def test_a_secret_that_is_deleted_is_written_again_as_it_is_served(client):
    first = await ensure_certificate(client, OURS)
    await client.delete(SECRETS, WEBHOOK_NAME, namespace="default")
    assert await ensure_certificate(client, OURS, first) == first
    assert await ensure_certificate(client, OURS) == first


def test_without_openssl_it_says_what_to_do(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CertificateError, match=r"openssl is required.*selfManaged: false"):
        issue(("host.example",))
