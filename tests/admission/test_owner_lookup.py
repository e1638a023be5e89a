"""Owners of a pod that is being created, read from the API."""

import asyncio

from kai_py.admission.owner_lookup import OwnerLookup
from kai_py.api.records.core import ObjectMeta, OwnerReference, PartialObjectMetadata, Pod
from kai_py.grouping.owner_chain import JOB
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
        chain = asyncio.run(lookup.lineage(pod("tenant", name)))
        assert (chain.owners, chain.unknown.uid) == ((), "job")
    chain = asyncio.run(lookup.lineage(pod("default")))
    assert [each.found.metadata.name for each in chain.owners] == ["train"]
