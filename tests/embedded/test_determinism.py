"""Same inputs, same seed: the event log is the same, byte for byte, in every process."""

import hashlib
import os
import subprocess
import sys

import pytest

from kai_py.embedded.clock import SimulatedClock
from kai_py.embedded.cluster import EmbeddedCluster
from kai_py.embedded.kubelet import RUN_SECONDS
from kai_py.embedded.resources import CLAIMS
from tests.embedded.manifests import claim_template, h100_cluster, job
from tests.embedded.placing import allocate, bind_all

SCRIPT = "from tests.embedded.test_determinism import run; print(run(seed=3))"


def run(seed):
    """Run jobs with claims for a while; return the digest of everything that was written."""
    cluster = EmbeddedCluster(clock=SimulatedClock(), seed=seed)
    digest = hashlib.sha256()
    cluster.store.subscribe(
        lambda change: digest.update(change.type.value.encode() + change.encoded)
    )
    cluster.start()
    cluster.create_all(h100_cluster())
    cluster.create(claim_template("t"))
    claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    for name, count in (("a", 3), ("b", 2)):
        annotations = {RUN_SECONDS: str(10 * count)}
        spec = {"parallelism": count, "completions": count + 1}
        cluster.create(
            job(name, annotations=annotations, pod_spec={"resourceClaims": claims}, **spec)
        )
    for _ in range(20):
        cluster.clock.advance(5)
        for number, claim in enumerate(cluster.api.list(CLAIMS)):
            pod = cluster.store.by_uid(claim["metadata"]["ownerReferences"][0]["uid"])
            if not claim["status"] and pod:
                allocate(cluster, claim["metadata"]["name"], [pod], f"gpu-{number}")
        bind_all(cluster, "h100-0")
    assert cluster.store.revision > 100
    return digest.hexdigest()


def test_the_same_seed_gives_the_same_log_and_another_seed_another():
    assert run(seed=3) == run(seed=3)
    assert run(seed=3) != run(seed=4)


@pytest.mark.slow
def test_the_log_does_not_depend_on_the_hash_seed():
    def in_process(hash_seed):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", SCRIPT]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert in_process("1") == in_process("2") == run(seed=3)
