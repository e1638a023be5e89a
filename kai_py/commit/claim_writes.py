"""How is a claim walked to its goal, or back, against an API that fails and changes meanwhile?

Every step is decided by ``kai_py.commit.claims`` from what the API holds. A conflict, and a
failure that leaves open whether the write happened, is answered by reading the claim again: what
was done is then seen as done. A copy of the watch may be older than our own undoing: only a write
that the server takes against its version, or a fresh copy, shows that a claim is where it must be.
"""

from kai_py.api.records.resource import ResourceClaim
from kai_py.api.references import ClaimRef
from kai_py.commit.access import Access, is_gone
from kai_py.commit.claims import (
    ClaimGoal,
    ClaimPatch,
    Lost,
    Reached,
    next_write,
    release_write,
)
from kai_py.commit.retry import TRANSIENT
from kai_py.watch.errors import ApiError, Conflict


async def reach(
    access: Access, goal: ClaimGoal, known: ResourceClaim | None
) -> ResourceClaim | Lost:
    """Bring a claim to its goal, starting from a copy that may be old; gives it as it then is."""
    try:
        claim = known or await access.read_claim(goal.claim)
        failures, reason = 0, ""
        while failures < access.retry.attempts:
            step = next_write(goal, claim)
            if claim is known and not isinstance(step, ClaimPatch):
                claim, known = await access.read_claim(goal.claim), None
                continue
            if isinstance(step, Reached):
                return claim
            if isinstance(step, Lost):
                return step
            try:
                claim = await _send(access, goal.claim, step)
            except (Conflict, *TRANSIENT) as error:
                failures, reason = failures + 1, str(error)
                await access.retry.pause(failures, error)
                claim = await access.read_claim(goal.claim)
    except ApiError as error:
        if is_gone(error):
            return Lost(f"claim {goal.claim}: was deleted")
        return Lost(f"claim {goal.claim}: {error}")
    return Lost(f"claim {goal.claim}: {failures} writes in a row failed: {reason}")


async def release(
    access: Access, ref: ClaimRef, leaving: frozenset[str], known: ResourceClaim | None = None
) -> None:
    """Take consumers with these uids from a claim, and its devices when nobody else is left.

    Raises ApiError when the API keeps failing; a claim that is gone holds nothing.
    """
    try:
        claim = known or await access.read_claim(ref)
        for failures in range(1, access.retry.attempts + 1):
            step = release_write(claim, leaving) if claim.metadata.uid == ref.uid else None
            if step is None:
                return
            try:
                claim = await _send(access, ref, step)
            except (Conflict, *TRANSIENT) as error:
                if failures == access.retry.attempts:
                    raise
                await access.retry.pause(failures, error)
                claim = await access.read_claim(ref)
    except ApiError as error:
        if not is_gone(error):
            raise


async def _send(access: Access, claim: ClaimRef, patch: ClaimPatch) -> ResourceClaim:
    return await access.call(
        lambda: access.client.patch(
            access.claims,
            claim.name,
            patch.body,
            namespace=claim.namespace,
            subresource=patch.subresource,
            how=patch.how,
        )
    )
