"""A snapshot builder that only remembers what commit told it."""


class RecordingRoom:
    def __init__(self) -> None:
        self.assumed: dict[str, str] = {}
        self.forgotten: list[str] = []
        self.held: dict[str, str] = {}
        self.leaving: set[str] = set()
        self.avoided: list[tuple] = []
        self.held_back: list[str] = []

    def assume(self, pod, node, claims=None, gpus=(), making=None, *, volumes=()) -> None:
        self.assumed[pod.uid] = node

    def forget(self, pod_uid) -> None:
        self.assumed.pop(pod_uid, None)
        self.forgotten.append(pod_uid)

    def avoid(self, device, why, seconds) -> None:
        self.avoided.append((device, why, seconds))

    def hold_back(self, gang, until) -> None:
        self.held_back.append(gang)

    def hold(self, pod_uid, node, now) -> None:
        self.held[pod_uid] = node

    def expect_leaving(self, pod_uid) -> None:
        self.leaving.add(pod_uid)

    def expect_staying(self, pod_uid) -> None:
        self.leaving.discard(pod_uid)
