"""What does a test see of workloads, claims and events in one namespace?"""

from dataclasses import dataclass

from tests.support.cluster.api import Api, Document
from tests.support.cluster.eventually import eventually

Device = tuple[str, str, str]


@dataclass(frozen=True)
class View:
    """One namespace, read again at each call."""

    api: Api
    namespace: str = "default"

    def path(self, kind: str) -> str:
        """Return the collection of `pods`, `jobs`, `resourceclaims` or `events` here."""
        root = {
            "pods": "/api/v1",
            "jobs": "/apis/batch/v1",
            "resourceclaims": "/apis/resource.k8s.io/v1",
            "events": "/apis/events.k8s.io/v1",
        }[kind]
        return f"{root}/namespaces/{self.namespace}/{kind}"

    async def pods(self, prefix: str = "") -> list[Document]:
        """Pods whose name is `prefix` or begins with it and a dash, leaving ones included."""
        everything = await self.api.items(self.path("pods"))
        return [pod for pod in everything if _belongs(pod["metadata"]["name"], prefix)]

    async def bound(self, prefix: str = "") -> dict[str, str]:
        """Pods that are on a node and stay: name to node."""
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in await self.pods(prefix)
            if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        }

    async def claims(self) -> list[Document]:
        """Every ResourceClaim."""
        return await self.api.items(self.path("resourceclaims"))

    async def held(self) -> list[Device]:
        """Devices of all allocations, sorted; one that is held twice is listed twice."""
        return sorted(device for claim in await self.claims() for device in devices_of(claim))

    async def events(self, *, kind: str, name: str, reason: str) -> list[str]:
        """Notes of the events on an object."""
        return [
            event.get("note", "")
            for event in await self.api.items(self.path("events"))
            if event["regarding"]["kind"] == kind
            and event["regarding"]["name"] == name
            and event["reason"] == reason
        ]

    async def wait_bound(self, prefix: str, count: int, *, within: float = 15.0) -> dict[str, str]:
        """Wait until exactly `count` pods are bound; return them."""

        async def reached() -> tuple[dict[str, str]]:
            bound = await self.bound(prefix)
            assert len(bound) == count, f"{len(bound)} of {count} bound: {await self.say(prefix)}"
            return (bound,)

        (bound,) = await eventually(reached, within=within)
        return bound

    async def wait_pending(
        self, prefix: str, count: int, *, reason: str, within: float = 15.0
    ) -> str:
        """Wait until `count` unbound pods all say `reason`, and the same sentence; return it."""

        async def said() -> str:
            pods = [pod for pod in await self.pods(prefix) if not pod["spec"].get("nodeName")]
            found = [scheduled_condition(pod) for pod in pods]
            seen = {(c.get("reason"), c.get("message")) for c in found}
            assert len(pods) == count, f"{len(pods)} of {count} pods are pending"
            assert len(seen) == 1, f"conditions: {seen}"
            assert {c.get("reason") for c in found} == {reason}, f"conditions: {seen}"
            return str(found[0]["message"])

        return await eventually(said, within=within)

    async def wait_incomplete(self, prefix: str, count: int, *, note: str) -> None:
        """Wait until an event tells what pods of half a gang wait for; no condition does."""

        async def told() -> bool:
            pods = [pod for pod in await self.pods(prefix) if not pod["spec"].get("nodeName")]
            notes = {event.get("note") for event in await self.api.items(self.path("events"))}
            assert len(pods) == count, f"{len(pods)} of {count} pods are pending"
            reasons = {scheduled_condition(pod).get("reason") for pod in pods}
            assert reasons <= {None, "SchedulingGated"}, f"reasons: {reasons}"
            assert note in notes, f"events: {notes}"
            return True

        await eventually(told, what=note)

    async def say(self, prefix: str = "") -> list[str]:
        """What pods say of their scheduling, for messages of failed tests."""
        return sorted({str(scheduled_condition(p).get("message")) for p in await self.pods(prefix)})


def scheduled_condition(pod: Document) -> Document:
    """Return the pod's PodScheduled condition, empty without one."""
    return condition(pod, "PodScheduled")


def condition(document: Document, kind: str) -> Document:
    """Return a condition of the document's status, empty without one."""
    conditions: list[Document] = document.get("status", {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == kind), {})


def devices_of(claim: Document) -> list[Device]:
    """Devices that a claim holds."""
    allocation = claim.get("status", {}).get("allocation") or {}
    results = allocation.get("devices", {}).get("results", ())
    return [(result["driver"], result["pool"], result["device"]) for result in results]


def _belongs(name: str, prefix: str) -> bool:
    return not prefix or name == prefix or name.startswith(f"{prefix}-")
