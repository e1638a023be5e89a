"""What a device costs its queue: the part that it takes of a GPU, worked out by hand per vendor.

Each row says how many of eight pods that claim the same run within a queue's ``maxGPUs``. Forms are
whole GPUs, MIG, partitions, shares, fractions, admin access, alternatives and all devices.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from kai_py.api.gpu_share import GPU_RESOURCE, SHARE_RESOURCE
from kai_py.api.records.resource import DeviceClass
from tests.support.records import from_json
from tests.support.scenario import (
    claim_of,
    claiming,
    cluster,
    device_slice,
    node,
    partitions,
    placed,
    pod,
    queue,
    shared,
)

NVIDIA, AMD, INTEL, EXAMPLE = "gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com", "gpu.example.com"
VENDORS = (NVIDIA, AMD, INTEL, EXAMPLE)
PODS = 8


def device(name: str, counters: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    """``counters``: drawn of the set ``card``; ``memory``: its capacity; else attributes."""
    made: dict[str, Any] = {"name": name}
    if counters:
        made["consumesCounters"] = [
            {"counterSet": "card", "counters": {k: {"value": v} for k, v in counters.items()}}
        ]
    capacity = {key: parts.pop(key) for key in ("memory", "cores") if key in parts}
    made["capacity"] = {
        key: value if isinstance(value, dict) else {"value": value}
        for key, value in capacity.items()
    }
    if parts.pop("shared", False):
        made["allowMultipleAllocations"] = True
    made["attributes"] = {key.replace("__", "/"): {"string": value} for key, value in parts.items()}
    return made


def slots(*taken: int) -> dict[str, Any]:
    return {f"memory-slice-{i}": "1" for i in taken}


A_STEP = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
CARD = {"memory": "80Gi", **slots(*range(8))}
BUS = "resource.kubernetes.io__pciBusID"


@dataclass(frozen=True)
class Row:
    """``limits``: maxGPUs to how many of the pods run; ``demand``: of the request."""

    name: str
    driver: str
    devices: list[dict[str, Any]]
    limits: dict[float, int]
    request: dict[str, Any] = field(default_factory=dict)
    counters: dict[str, str] = field(default_factory=dict)


def whole(driver: str, count: int = 8) -> Row:
    devices = [device(f"gpu-{i}", memory="80Gi", type="gpu", uuid=f"u{i}") for i in range(count)]
    return Row(f"{driver}: whole", driver, devices, {0: 0, 1: 1, 2.5: 2, 8: 8})


MIG = [
    device(f"mig-{i}", {"memory": "10Gi", **slots(i)}, type="mig", profile="1g.10gb")
    for i in range(7)
]
CPX = [
    device(f"p-{i}", type="amdgpu-partition", memory="24Gi", cores="38", **{BUS: "0000:19:00.0"})
    for i in range(8)
]
QUARTERS = [device(f"q-{i}", {"memory": "20Gi", **slots(2 * i, 2 * i + 1)}) for i in range(4)]
SHARED = [
    device(f"gpu-{i}", shared=True, memory={"value": "80Gi", "requestPolicy": A_STEP})
    for i in range(2)
]
TABLE = [
    *(whole(driver) for driver in VENDORS),
    Row("channels", NVIDIA, [device(f"c-{i}", type="channel") for i in range(8)], {0: 8}),
    Row("MIG 1g of 7 slices", NVIDIA, MIG, {0.5: 3, 1: 7}, counters=CARD),
    Row(
        "static MIG 3g: 3 of 7 slices",
        NVIDIA,
        [
            device(f"m{i}", type="mig", profile="3g.40gb", uuid=f"m{i}", parentUUID=f"g{i // 2}")
            for i in range(8)
        ],
        {0.4: 0, 0.5: 1, 1: 2, 2: 4},
    ),
    Row(
        "MIG 1g of 4 slices",
        NVIDIA,
        [device(f"m{i}", type="mig", profile="1g.6gb", productName="NVIDIA A30") for i in range(4)],
        {0.5: 2, 1: 4},
    ),
    Row("partitions of one GPU", AMD, CPX, {0.5: 4, 1: 8}),
    Row(
        "partitions of two sizes",
        AMD,
        [
            device(f"p{i}", type="amdgpu-partition", memory=size, cores="0", **{BUS: "one"})
            for i, size in enumerate(("40Gi", "20Gi", "20Gi"))
        ],
        {0.2: 0, 0.3: 1, 0.5: 1, 0.75: 2, 1: 3},
    ),
    Row(
        "partitions with three quarters of the memory, or of the cores",
        AMD,
        [
            device(f"p{i}", type="amdgpu-partition", memory=size, cores=cores, **{BUS: "one"})
            for i, (size, cores) in enumerate((("60Gi", "2"), ("20Gi", "6")))
        ],
        {0.7: 0, 0.75: 1, 1.5: 2},
    ),
    Row(
        "a mode of partitions, shared by count",
        AMD,
        [
            device(
                "gpu-0-cpx",
                {"partition-mode": "1"},
                shared=True,
                type="amdgpu-partition",
                cores={"value": "8", "requestPolicy": {"default": "1"}},
            )
        ],
        {0.25: 2, 1: 8},
        counters={"partition-mode": "1"},
    ),
    *(
        Row("quarters by counters", driver, QUARTERS, {0.5: 2, 1: 4}, counters=CARD)
        for driver in VENDORS
    ),
    Row(
        "lopsided halves: half of the memory, an eighth of the slots",
        EXAMPLE,
        [device(f"h{i}", {"memory": "40Gi", **slots(i)}) for i in range(2)],
        {0.5: 1, 1: 2},
        counters=CARD,
    ),
    *(
        Row(f"shares of {size}", driver, SHARED, limits, {"memory": size})
        for driver in VENDORS
        for size, limits in (("10Gi", {0.5: 4, 1: 8}), ("40Gi", {0.5: 1, 1: 2, 2: 4}))
    ),
    Row("shares by default", EXAMPLE, SHARED, {0.05: 4}),
    *(
        Row(
            f"shares of {cores} cores and {size}",
            EXAMPLE,
            [device("gpu-0", shared=True, memory="80Gi", cores="100")],
            {0.5: 1, 1: 2},
            {"memory": size, "cores": cores},
        )
        for size, cores in (("40Gi", "10"), ("8Gi", "50"))
    ),
    Row(
        "shares of GPUs with a capacity of zero",
        EXAMPLE,
        [device(f"gpu-{i}", shared=True, memory="80Gi", cores="0") for i in range(2)],
        {0.5: 1, 1: 2, 4: 4},
        {"memory": "40Gi"},
    ),
    Row(
        "shares that name no capacity",
        EXAMPLE,
        [device("gpu-0", shared=True)],
        {0.5: 0, 1: 1, 3: 3},
    ),
]


def world(row: Row, limit: float, request: dict[str, Any] | None = None, pods: int = PODS):
    cel = f'device.driver == "{row.driver}"'
    spec = {"selectors": [{"cel": {"expression": cel}}]}
    yield from_json(DeviceClass, {"metadata": {"name": row.driver}, "spec": spec})
    yield from (node("n0", 0), queue("team", 0, limit))
    if row.counters:
        yield from partitions("n0", row.devices, {"card": row.counters}, driver=row.driver)
    else:
        yield device_slice("n0", row.devices, driver=row.driver)
    asked = {"deviceClassName": row.driver}
    amounts = {key: row.request[key] for key in ("memory", "cores") if key in row.request}
    if amounts:
        asked["capacity"] = {"requests": amounts}
    for i in range(pods):
        yield from claims(f"p{i}", request or {"exactly": asked})


def claims(name: str, request: dict[str, Any]):
    yield claim_of(name, {"name": "gpu", **request}, owner=name)
    yield claiming(pod(name, 0, queue="team"), name)


@pytest.mark.parametrize(
    ("row", "limit", "pods"),
    [
        pytest.param(row, limit, pods, id=f"{row.driver}: {row.name}, {limit} GPUs")
        for row in TABLE
        for limit, pods in row.limits.items()
    ],
)
def test_pods_within_the_limit(row: Row, limit: float, pods: int):
    assert len(placed(cluster(*world(row, limit)).plan())) == pods


def of_class(driver: str, **asked: Any) -> dict[str, Any]:
    return {"deviceClassName": driver} | asked


def listed(driver: str, *counts: int) -> dict[str, Any]:
    """A request for the first of these numbers of devices."""
    alternatives = [of_class(driver, name=f"x{count}", count=count) for count in counts]
    return {"firstAvailable": alternatives}


FORMS: dict[str, tuple[Callable[[str], dict[str, Any]], dict[float, int]]] = {
    "admin": (
        lambda driver: {"exactly": of_class(driver, adminAccess=True, allocationMode="All")},
        {0: 8},
    ),
    "all of eight": (
        lambda driver: {"exactly": of_class(driver, allocationMode="All")},
        {7: 0, 8: 1},
    ),
    # The first pod takes four, or two below a limit of four; what is left serves the next.
    "four or two": (lambda driver: listed(driver, 4, 2), {1: 0, 3: 1, 5: 1, 6: 2, 8: 2}),
    "eight, three or one": (lambda driver: listed(driver, 8, 3, 1), {2: 2, 5: 3, 7: 3, 8: 1}),
}
"""What pods request of eight GPUs; limits as in a row."""


@pytest.mark.parametrize("driver", VENDORS)
@pytest.mark.parametrize(
    ("form", "limit", "pods"),
    [(form, limit, pods) for form in FORMS for limit, pods in FORMS[form][1].items()],
)
def test_forms_of_requests_within_the_limit(driver: str, form: str, limit: float, pods: int):
    request = FORMS[form][0](driver)
    assert len(placed(cluster(*world(whole(driver), limit, request)).plan())) == pods


@pytest.mark.parametrize("driver", VENDORS)
@pytest.mark.parametrize(("limit", "pods"), [(0.2, 0), (0.5, 2), (1, 4), (2, 8)])
def test_a_fraction_costs_what_a_share_costs(driver: str, limit: float, pods: int):
    made, *others = world(Row("", driver, SHARED, {}), limit, pods=0)
    serving = with_fields(made, spec=with_fields(made.spec, extended_resource_name=GPU_RESOURCE))
    quarters = [
        shared(pod(f"p{i}", 0, queue="team", requests={SHARE_RESOURCE: "1"}), "0.25")
        for i in range(PODS)
    ]
    assert len(placed(cluster(serving, *others, *quarters).plan())) == pods
