"""May a pod have the devices its claims were given?

As a kubelet and its drivers, which prepare a claim only when it is allocated and reserved for the
pod, and give a device that is not shared to one claim at a time. The API server checks no such
thing, so this is where a device that two schedulers gave away twice comes to light.
"""

from collections.abc import Iterable, Iterator

from tests.support.cluster.api import Document

Device = tuple[str, str, str]


class Devices:
    """Which claim has which device, for as long as pods use it."""

    def __init__(self) -> None:
        self._claim_of: dict[Device, str] = {}
        self._devices_of: dict[str, list[Device]] = {}
        self._users_of: dict[str, set[str]] = {}

    def prepare(self, pod_uid: str, claims: Iterable[Document], *, group: str = "") -> str:
        """Give the claims' devices to the pod; return why not, "" when it has them.

        A claim may be reserved for the pod's PodGroup, by name, in place of the pod.
        """
        wanted = {claim["metadata"]["uid"]: claim for claim in claims}
        for uid, claim in wanted.items():
            reason = _unready(claim, pod_uid, group) or self._taken(uid, claim)
            if reason:
                return reason
        for uid, claim in wanted.items():
            self._devices_of[uid] = list(_exclusive_devices(claim))
            self._claim_of |= dict.fromkeys(self._devices_of[uid], uid)
            self._users_of.setdefault(uid, set()).add(pod_uid)
        return ""

    def release(self, pod_uid: str) -> None:
        """Free the devices of the claims that only this pod used."""
        for uid in [uid for uid, users in self._users_of.items() if pod_uid in users]:
            self._users_of[uid].remove(pod_uid)
            if self._users_of[uid]:
                continue
            del self._users_of[uid]
            for device in self._devices_of.pop(uid):
                del self._claim_of[device]

    def _taken(self, uid: str, claim: Document) -> str:
        for device in _exclusive_devices(claim):
            if self._claim_of.get(device, uid) != uid:
                return f"claim {claim['metadata']['name']}: {'/'.join(device)} is in use"
        return ""


def _unready(claim: Document, pod_uid: str, group: str) -> str:
    name, status = claim["metadata"]["name"], claim.get("status", {})
    if "allocation" not in status:
        return f"claim {name} is not allocated"
    users = [
        (user["resource"], user["uid"], user["name"]) for user in status.get("reservedFor", ())
    ]
    for_group = ("podgroups", group)
    if not any(uid == pod_uid or (kind, name) == for_group for kind, uid, name in users):
        return f"claim {name} is not reserved for the pod"
    return ""


def _exclusive_devices(claim: Document) -> Iterator[Device]:
    for result in claim["status"]["allocation"].get("devices", {}).get("results", ()):
        if not result.get("adminAccess") and "shareID" not in result:
            yield result["driver"], result["pool"], result["device"]
