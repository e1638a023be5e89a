"""The certificate that is served is looked after while the webhooks run."""

import asyncio

from kai_py.admission import server
from kai_py.admission.certificate import SECRETS, ensure_certificate
from kai_py.admission.server import CertificateFiles, maintain_certificate
from kai_py.api.admission import WEBHOOK_NAME
from kai_py.watch.errors import NotFound
from tests.admission.test_certificate import OURS, issue, write
from tests.support.cluster.eventually import eventually


async def test_the_secret_is_looked_at_every_ten_minutes(client, tmp_path, monkeypatch):
    assert server.CHECK_SECONDS == 600.0
    monkeypatch.setattr(server, "CHECK_SECONDS", 0.01)
    files, first = CertificateFiles(tmp_path), await ensure_certificate(client, OURS)
    files.write(first)
    keeping = asyncio.create_task(maintain_certificate(client, OURS, files, first))
    await client.delete(SECRETS, WEBHOOK_NAME, namespace="default")

    async def written_again():
        try:
            return await client.get(SECRETS, WEBHOOK_NAME, namespace="default")
        except NotFound:
            return None

    await eventually(written_again, what="the Secret that was deleted")
    assert not keeping.done(), "webhook configurations that are missing end nothing"
    other = issue(("host.example",))
    await write(client, tls_crt=other.served, tls_key=other.key)

    async def served():
        return (tmp_path / "tls.crt").read_bytes() == other.served

    await eventually(served, what="the certificate that the Secret has now")
    keeping.cancel()
