"""Each conformance test has a namespace of its own."""

import itertools

import pytest

from tests.cluster.conformance.place import Place
from tests.support.cluster.clusters import Cluster

NUMBERS = itertools.count()


@pytest.fixture
async def place(cluster: Cluster) -> Place:
    namespace = f"conformance-{next(NUMBERS)}"
    await cluster.create_namespace(namespace)
    return Place(cluster, namespace)
