"""Values of the live view: the cluster at one moment, before rendering."""

from enum import Enum

from msgspec import Struct

MAX_SLOTS = 256
"""Most GPUs that are drawn of one node."""


class GpuState(Enum):
    """State of a GPU."""

    FREE = "free"
    STARTING = "starting"
    """Its pod is bound but does not run yet."""
    RUNNING = "running"
    TERMINATING = "terminating"
    """Its pod is terminating."""


class GpuSlot(Struct, frozen=True):
    """A GPU of a node; ``gang`` is empty while it is free."""

    state: GpuState = GpuState.FREE
    gang: str = ""


class LiveNode(Struct, frozen=True):
    """A node with its GPUs in the order of their names.

    ``is_sum``: it stands for GPUs of others on any nodes, of which only the numbers are shown.
    """

    name: str
    rack: str
    slots: tuple[GpuSlot, ...]
    is_sum: bool = False

    @property
    def used(self) -> int:
        """GPUs that are allocated."""
        return sum(slot.state is not GpuState.FREE for slot in self.slots)


class LiveQueue(Struct, frozen=True):
    """GPUs of a queue; ``maximum`` is None where there is no limit.

    ``deserved`` and ``fair_share`` may be infinite. ``depth``: how many queues are above it.
    """

    name: str
    deserved: float
    fair_share: float
    allocated: float
    maximum: float | None
    depth: int = 0


class LiveGang(Struct, frozen=True):
    """A gang: its pods by state, and why it is pending, if it is."""

    key: str
    queue: str
    pods: int
    bound: int
    running: int
    terminating: int
    finished: int
    pending_reason: str

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]


class LiveCluster(Struct, frozen=True):
    """The cluster at one moment; nodes by rack and name, queues as a tree, gangs by age."""

    nodes: tuple[LiveNode, ...] = ()
    queues: tuple[LiveQueue, ...] = ()
    gangs: tuple[LiveGang, ...] = ()

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return sum(len(node.slots) for node in self.nodes)

    @property
    def used(self) -> int:
        """GPUs that are allocated."""
        return sum(node.used for node in self.nodes)
