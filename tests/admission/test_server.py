"""The certificate that is served is looked after while the webhooks run."""

import asyncio
from functools import partial

import aiohttp
import kopf
import pytest
from kopf._cogs.structs.references import Insights, Resource
from kopf._core.engines.admission import serve_admission_request
from kopf._core.reactor.inventory import ResourceMemories

from kai_py.admission import server
from kai_py.admission.certificate import SECRETS, ensure_certificate, issue
from kai_py.admission.handlers import MIRRORED, AdmissionContext, _raise_refusals, registry
from kai_py.admission.rules import AdmissionVerdict
from kai_py.admission.server import CertificateFiles, maintain_certificate
from kai_py.api.admission import KAI_POD_GROUP_RULES, WEBHOOK_NAME
from kai_py.api.settings import WebhookConfig
from kai_py.config import Configuration
from kai_py.watch.errors import NotFound
from kai_py.watch.kinds import KAI_POD_GROUPS
from kai_py.watch.mirror import Mirror
from tests.admission.test_certificate import OURS, write
from tests.cluster.controlplane.ports import reserved_port
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


@pytest.mark.parametrize("size", [1, 6_000_000], ids=["small", "the-largest"])
async def test_a_review_leaves_nothing_in_memory_however_large_it_is(client, tmp_path, size):
    annotations = {"notes": "x" * size}
    metadata = {"uid": "1", "name": "g", "annotations": annotations}
    group = {"metadata": metadata, "spec": {"minMember": 1}}
    where = {"group": KAI_POD_GROUPS.group, "version": "v2alpha2"}
    request = {
        "uid": "r",
        "operation": "UPDATE",
        "userInfo": {},
        "resource": {**where, "resource": "podgroups"},
        "object": group | {"spec": {"minMember": 1, "minSubGroup": 1}},
        "oldObject": group | {"metadata": {"uid": "1", "name": "g"}},
    }
    insights, memories = Insights(), ResourceMemories()
    insights.webhook_resources.add(Resource(**where, plural="podgroups"))
    context = AdmissionContext(client, Mirror(client, MIRRORED), Configuration())
    handle = partial(
        serve_admission_request,
        settings=kopf.OperatorSettings(),
        memories=memories,
        memobase=kopf.Memo(),
        registry=registry(context),
        insights=insights,
        indices={},
    )
    files = CertificateFiles(tmp_path)
    files.write(await ensure_certificate(client, OURS))
    with reserved_port() as port:
        settings = WebhookConfig(host="127.0.0.1", port=port)
        serving = server._PublishingServer(client, settings, files)(handle)
        await anext(serving)
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{port}/{KAI_POD_GROUP_RULES}"
            answer = await session.post(url, json={"request": request}, ssl=False)
            verdict = (await answer.json())["response"]
        await serving.aclose()
    assert not verdict["allowed"]
    assert "minSubGroup are both set" in verdict["status"]["message"]
    assert not [*memories.iter_all_memories()]


def test_a_refusal_names_no_more_than_five_problems():
    verdict = AdmissionVerdict(refusals=tuple(f"problem {number}" for number in range(1000)))
    with pytest.raises(kopf.AdmissionError, match=r"problem 4; and 995 more$"):
        _raise_refusals(verdict, [])
