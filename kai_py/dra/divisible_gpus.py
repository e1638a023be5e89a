"""Divisible GPUs of DRA drivers: which GPUs can be divided, and how claims request parts of them.

A GPU can be divided if the driver lets several claims have it and gives it capacities to consume
(KEP-5075). A pod requests the same fraction of each of its capacities, so that what one pod leaves
is left of all of them. Amounts are rounded down to what the request policy allows, but not below
its minimum: as many fractions 1/n fit as the policy permits.

Fractions are of one size of GPU. Where a node has GPUs of several sizes, the request lists them as
alternatives, the smallest first. Parts of several GPUs are on distinct ones: an identifier of the
driver tells these apart (``distinctAttribute``).
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from kai_py.api.gpu_share import GpuShare
from kai_py.api.quantity import NANO, Quantity
from kai_py.api.records.resource import (
    CapacityRequirements,
    CELDeviceSelector,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
)
from kai_py.dra.capacity import ParsedCapacity
from kai_py.dra.device_kinds import DeviceKind
from kai_py.dra.rows import DeviceRow

MIB = 2**20 * NANO
MEMORY = "memory"
MAX_SIZES = 8
"""Alternatives that a request may list, in the API."""
SHAREABLE = "device.allowMultipleAllocations"


class DivisibleGpu(Struct, frozen=True):
    """What GPUs of one size have in common.

    ``memory``: nano-bytes, 0 where the driver does not say. ``identifier``: the full name of an
    attribute in which no two GPUs are equal, or "".
    """

    driver: str
    memory: int
    capacities: tuple[ParsedCapacity, ...]
    identifier: str

    def serves(self, share: GpuShare) -> bool:
        """Whether a claim can be made for ``share``, were the GPU free."""
        if share.devices > 1 and not self.identifier:
            return False
        return bool(share.fraction) or 0 < round(share.memory * MIB) <= self.memory


def divisible_by_node(kinds: Iterable[DeviceKind]) -> Mapping[str, tuple[DivisibleGpu, ...]]:
    """The sizes of divisible GPUs of each node, the smallest first; O(kinds x nodes)."""
    found: dict[str, dict[DivisibleGpu, None]] = {}
    for kind in kinds:
        gpu = _divisible(kind.row) if kind.gpus == 1.0 else None
        for node in kind.by_node if gpu is not None else ():
            if node and gpu is not None:
                found.setdefault(node, {})[gpu] = None
    return {node: tuple(sorted(sizes, key=_size)) for node, sizes in found.items()}


def serving(gpus: Iterable[DivisibleGpu], share: GpuShare) -> tuple[DivisibleGpu, ...]:
    """The GPUs of which ``share`` can be taken.

    For parts of several GPUs, only those that the same attribute identifies.
    """
    found = tuple(each for each in gpus if each.serves(share))
    if share.devices == 1:
        return found
    return tuple(each for each in found if each.identifier == found[0].identifier)


def memory_mib(gpus: Sequence[DivisibleGpu]) -> float:
    """MiB of the smallest of ``gpus`` whose memory is known, else 0."""
    return min((each.memory / MIB for each in gpus if each.memory), default=0.0)


def share_request(
    name: str, device_class: str, share: GpuShare, gpus: Sequence[DivisibleGpu]
) -> DeviceRequest:
    """The request for ``share`` on a node with ``gpus``, each of which serves it."""
    requests = [_exact_request(device_class, share, gpu) for gpu in gpus[:MAX_SIZES]]
    if len(requests) == 1:
        return DeviceRequest(name=name, exactly=requests[0])
    alternatives = tuple(
        DeviceSubRequest(
            name=f"size-{number}",
            device_class_name=each.device_class_name,
            selectors=(*each.selectors, _of_size(gpu)),
            count=each.count,
            capacity=each.capacity,
        )
        for number, (each, gpu) in enumerate(zip(requests, gpus, strict=False))
    )
    return DeviceRequest(name=name, first_available=alternatives)


def share_constraints(
    name: str, share: GpuShare, gpus: Sequence[DivisibleGpu]
) -> tuple[DeviceConstraint, ...]:
    """What keeps the parts of several GPUs on distinct ones."""
    if share.devices == 1:
        return ()
    return (DeviceConstraint(requests=(name,), distinct_attribute=gpus[0].identifier),)


def _divisible(row: DeviceRow) -> DivisibleGpu | None:
    capacities = tuple(each for each in row.capacities if each.value > 0)
    if not row.shareable or not capacities:
        return None
    memory = next((each.value for each in capacities if _base_name(each.name) == MEMORY), 0)
    return DivisibleGpu(row.id.driver, memory, capacities, _identifier(row))


def _identifier(row: DeviceRow) -> str:
    """A uuid before a PCI address: devices of one kind differ by no other attribute."""
    names = {name if "/" in name else f"{row.id.driver}/{name}" for name in row.device.attributes}
    own = {name for name in names if not _base_name(name).lower().startswith("parent")}
    for text in ("uuid", "pcibusid", "pci"):
        found = sorted(name for name in own if text in _base_name(name).lower())
        if found and text != "pci":
            return found[0]
        unique = [name for name in found if "root" not in name.lower()]
        if unique:
            return unique[0]
    return ""


def _base_name(name: str) -> str:
    return name.rpartition("/")[2]


def _size(gpu: DivisibleGpu) -> tuple[int, str, str]:
    return gpu.memory, gpu.driver, repr(gpu.capacities)


def _exact_request(device_class: str, share: GpuShare, gpu: DivisibleGpu) -> ExactDeviceRequest:
    return ExactDeviceRequest(
        device_class_name=device_class,
        selectors=(_selector(SHAREABLE),),
        count=share.devices,
        capacity=CapacityRequirements(
            requests={each.name: _amount(each, share, gpu) for each in gpu.capacities}
        ),
    )


def _amount(capacity: ParsedCapacity, share: GpuShare, gpu: DivisibleGpu) -> str:
    """The part of a capacity, as text; an amount of memory is what the user wrote."""
    if share.memory and _base_name(capacity.name) == MEMORY:
        return f"{share.memory:.0f}Mi"
    # In integers: a rounding error could cost a whole step of the policy.
    part, whole = (
        (round(share.fraction * NANO), NANO)
        if share.fraction
        else (round(share.memory) * MIB, gpu.memory)
    )
    return str(Quantity(_rounded_down(capacity, part * capacity.value // whole), capacity.format))


def _rounded_down(capacity: ParsedCapacity, nano: int) -> int:
    """The largest amount that the policy gives out up to ``nano``, else its least."""
    valid = capacity.range
    if valid is not None:
        if nano <= valid.min:
            return valid.min
        most = nano if valid.max is None else min(nano, valid.max)
        step = valid.step or NANO
        return valid.min + (most - valid.min) // step * step
    if capacity.valid_values:
        smaller = [value for value in capacity.valid_values if value <= nano]
        return max(smaller, default=min(capacity.valid_values))
    return max(nano // NANO, 1) * NANO


def _of_size(gpu: DivisibleGpu) -> DeviceSelector:
    """GPUs with exactly these capacities."""
    tests = []
    for each in gpu.capacities:
        domain, _, name = each.name.rpartition("/")
        quantity = Quantity(each.value, each.format)
        amount = f'device.capacity["{domain or gpu.driver}"].{name}'
        tests.append(f'{amount}.compareTo(quantity("{quantity}")) == 0')
    return _selector(" && ".join(tests))


def _selector(expression: str) -> DeviceSelector:
    return DeviceSelector(cel=CELDeviceSelector(expression=expression))
