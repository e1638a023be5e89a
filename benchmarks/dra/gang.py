"""A Job whose pods each have a claim from a template."""

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.core.objects import EPOCH, NAMESPACE, QUEUE_KEY, pod_spec
from benchmarks.dra.objects import claim
from kai_py.api.records.core import (
    ObjectMeta,
    OwnerReference,
    Pod,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodStatus,
)
from kai_py.api.records.job import Job, JobSpec


def claiming_gang(pods: int, gpus: int, name: str, queue: str) -> list[Struct]:
    """The Job, its pods and their claims for ``gpus`` devices each."""
    owner = OwnerReference(
        api_version="batch/v1", kind="Job", name=name, uid=f"job-{name}", controller=True
    )
    marks = {QUEUE_KEY: queue}
    made: list[Struct] = [
        Job(
            metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid=owner.uid, annotations=marks),
            spec=JobSpec(parallelism=pods, completions=pods),
        )
    ]
    wanted = PodResourceClaim(name="gpus", resource_claim_template_name="gpus")
    spec = replace(pod_spec(0), resource_claims=(wanted,))
    for i in range(pods):
        each = f"{name}-{i}"
        known = PodResourceClaimStatus(name="gpus", resource_claim_name=each)
        metadata = ObjectMeta(
            name=each,
            namespace=NAMESPACE,
            uid=f"pod-{each}",
            creation_timestamp=EPOCH,
            owner_references=(owner,),
        )
        status = PodStatus(phase="Pending", resource_claim_statuses=(known,))
        made += [
            claim(each, gpus, owner=each),
            Pod(metadata=metadata, spec=spec, status=status),
        ]
    return made
