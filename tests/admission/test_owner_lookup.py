"""Owners of a pod that is being created, read from the API."""

import asyncio

from msgspec import json

from kai_py.admission import owner_lookup
from kai_py.admission.owner_lookup import OwnerLookup
from kai_py.api.records.core import ObjectMeta, OwnerReference, PartialObjectMetadata, Pod
from kai_py.grouping.owner_chain import JOB
from kai_py.watch.client import Client
from kai_py.watch.errors import from_response
from kai_py.watch.kinds import JOBS


class Api:
    """Has one Job, ``train`` in the namespace ``default``."""

    async def get(self, _resource, name, namespace=""):
        uid = "job" if (namespace, name) == ("default", "train") else "another"
        meta = ObjectMeta(name=name, namespace=namespace, uid=uid)
        return PartialObjectMetadata(metadata=meta)


def pod(namespace, owner="train"):
    reference = OwnerReference(
        api_version="batch/v1", kind="Job", name=owner, uid="job", controller=True
    )
    return Pod(ObjectMeta(name="p", namespace=namespace, owner_references=(reference,)))


def test_what_a_pod_of_another_namespace_says_of_an_owner_is_not_remembered():
    lookup = OwnerLookup(Api(), {JOB: JOBS})
    for name in ("train", "other"):
        chain = asyncio.run(lookup.chain_of(pod("tenant", name)))
        assert (chain.owners, chain.unknown.uid) == ((), "job")
    chain = asyncio.run(lookup.chain_of(pod("default")))
    assert [each.found.metadata.name for each in chain.owners] == ["train"]


class Discovered:
    """Serves Widgets in the versions given, with one widget in each."""

    def __init__(self, *versions):
        self.versions, self.calls = versions, 0

    async def send(self, call, **_options):
        self.calls += 1
        group, _, rest = call.path.removeprefix("/apis/").partition("/")
        version, _, path = rest.partition("/")
        if not group or call.path == "/apis":
            listed = [{"version": each} for each in self.versions]
            return json.encode({"groups": [{"name": "example.com", "versions": listed}]})
        if version not in self.versions:
            raise from_response(str(call), 404, b"404 page not found", {})
        if not path:
            widgets = {"name": "widgets", "kind": "Widget", "verbs": ["list", "watch"]}
            return json.encode({"resources": [widgets]})
        meta = {"name": "train", "namespace": "default", "uid": "job"}
        return json.encode({"metadata": meta})


def owned_by(kind, number=0):
    reference = OwnerReference(
        api_version="example.com/v1", kind=kind, name="train", uid="job", controller=True
    )
    return Pod(ObjectMeta(name=f"p{number}", namespace="default", owner_references=(reference,)))


async def test_an_owner_is_found_in_another_version_after_its_own_is_gone(monkeypatch):
    monkeypatch.setattr(owner_lookup, "CACHE_SECONDS", 0.0)
    server = Discovered("v1beta1")
    lookup = OwnerLookup(Client(server))
    assert (await lookup.chain_of(owned_by("Widget"))).owners
    server.versions = ("v1",)
    assert not (await lookup.chain_of(owned_by("Widget"))).owners
    assert (await lookup.chain_of(owned_by("Widget"))).owners


async def test_kinds_that_do_not_exist_are_not_kept():
    lookup = OwnerLookup(Client(Discovered("v1")))
    for number in range(50):
        await lookup.chain_of(owned_by(f"Kind{number}"))
    assert not lookup._kinds
