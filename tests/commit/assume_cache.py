"""A snapshot builder that only remembers what commit told it."""


class RecordingAssumeCache:
    def __init__(self) -> None:
        self.assumed: dict[str, str] = {}
        self.forgotten: list[str] = []
        self.held: dict[str, str] = {}
        self.leaving: set[str] = set()
        self.refused: dict[str, float] = {}
        self.avoided: list[tuple] = []
        self.held_back: list[str] = []

    def assume(self, binding) -> None:
        self.assumed[binding.pod_uid] = binding.node

    def assumed_pods(self):
        return frozenset(self.assumed)

    def forget(self, pod_uid) -> None:
        self.assumed.pop(pod_uid, None)
        self.forgotten.append(pod_uid)

    def avoid_device(self, device, reason, seconds) -> None:
        self.avoided.append((device, reason, seconds))

    def back_off(self, gang, until, reason) -> None:
        self.held_back.append(gang)

    def nominate(self, pod_uid, node, now) -> None:
        self.held[pod_uid] = node

    def expect_eviction(self, pod_uid) -> None:
        self.leaving.add(pod_uid)

    def cancel_eviction(self, pod_uid, refused_until=0.0) -> None:
        self.leaving.discard(pod_uid)
        self.refused[pod_uid] = refused_until
