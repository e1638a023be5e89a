"""API access shared by the writers of this package: client, served resources, concurrency limit.

The limit bounds the calls under way at once. Bindings and claims share one; statuses and events
have limits of their own, so that reporting never delays scheduling. Calls that hang because of one
namespace leave some of it for the others (``commit.call_limit``).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kai_py.api.records.core import Pod
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.call_limit import CallLimit
from kai_py.commit.retry import RetryPolicy, retry_transient
from kai_py.watch.client import Client, PatchType
from kai_py.watch.errors import ApiError, Invalid, is_absent
from kai_py.watch.resource import Identified, Resource

Result = TypeVar("Result")


@dataclass(frozen=True)
class ApiAccess:
    """Calls under one concurrency limit; ``retry`` applies to each object by itself.

    ``settle_pause``: the waits between reads that are repeated until one of them succeeds.
    ``namespace``: the one that calls are about which do not say so themselves.
    """

    client: Client
    pods: Resource[Pod]
    claims: Resource[ResourceClaim]
    limiter: CallLimit
    retry: RetryPolicy
    settle_pause: RetryPolicy
    namespace: str = ""

    def about(self, namespace: str) -> "ApiAccess":
        """The same access, for calls about one namespace."""
        return replace(self, namespace=namespace)

    async def call(
        self, request: Callable[[], Awaitable[Result]], namespace: str | None = None
    ) -> Result:
        """Make one call within the limit; about ``namespace``, that of the access by default."""
        async with self.limiter.slot(self.namespace if namespace is None else namespace):
            return await request()

    async def read_claim(self, claim: ClaimRef) -> ResourceClaim:
        """Read a claim, repeating transient failures; raises ApiError."""
        return await retry_transient(
            lambda: self.call(
                lambda: self.client.get(self.claims, claim.name, namespace=claim.namespace),
                claim.namespace,
            ),
            self.retry,
        )

    async def read_pod(self, pod: PodRef) -> Pod:
        """Read a pod, repeating transient failures; raises ApiError."""
        return await retry_transient(
            lambda: self.call(
                lambda: self.client.get(self.pods, pod.name, namespace=pod.namespace),
                pod.namespace,
            ),
            self.retry,
        )

    async def patch_pod(
        self,
        pod: PodRef,
        body: dict[str, Any],
        *,
        subresource: str = "",
        patch_type: PatchType = PatchType.MERGE,
    ) -> Pod:
        """Patch a pod within the limit; raises ApiError, see ``is_gone``.

        ``body`` names the pod's uid, so that no other pod of its name is changed.
        """
        return await self.call(
            lambda: self.client.patch(
                self.pods,
                pod.name,
                body,
                namespace=pod.namespace,
                subresource=subresource,
                patch_type=patch_type,
            ),
            pod.namespace,
        )


def is_gone(error: ApiError, name: str) -> bool:
    """Whether a patch of ``name`` with a uid failed because that incarnation exists no more.

    A uid in a patch is no precondition but a change of an immutable field: 422, not 409.
    """
    if isinstance(error, Invalid):
        return any(cause.field == "metadata.uid" for cause in error.causes)
    return is_absent(error, name)


def preconditions(known: Identified) -> dict[str, str]:
    """Metadata for a patch that the API server refuses (409) if the object has changed."""
    return {"uid": known.metadata.uid, "resourceVersion": known.metadata.resource_version}
