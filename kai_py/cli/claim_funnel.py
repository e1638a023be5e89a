"""Text of a claim's device funnel, for ``kai-py explain claim``."""

from collections.abc import Iterator

from kai_py.cli.output import count_of, print_table, say
from kai_py.observe.claim_funnel import ClaimFunnel, RequestFunnel


def print_claim(claim: ClaimFunnel) -> None:
    """Print the funnel of a claim."""
    if claim.allocated:
        say("")
        say(f"Claim {claim.claim} is allocated {', '.join(claim.allocated)}.")
        return
    say("")
    nodes = count_of(claim.nodes, "node")
    say(f"Devices for claim {claim.claim}: {claim.devices} on {nodes}.")
    if claim.message:
        say(f"  {claim.message}")
    for pool in claim.unusable_pools:
        say(f"  pool {pool} is not used")
    for request in claim.requests:
        count = request.count or "all"
        say("")
        say(f"  request {request.request}: {count} of class {request.device_class}")
        print_table(("DEVICES", "", "REASON"), _request_rows(claim, request))
        if request.nearest is not None:
            has = " and ".join(
                f"{name} is {value}" for name, value in request.nearest.actual.items()
            )
            say(f"  nearest is {request.nearest.device}{f', where {has}' if has else ''}")


def _request_rows(claim: ClaimFunnel, request: RequestFunnel) -> Iterator[tuple[str, str, str]]:
    yield str(claim.devices), "exist", ""
    for each in request.rejected:
        yield f"-{each.devices}", each.check, each.reason
    yield str(request.free), "free", f"at most {request.max_per_node} on a node"
