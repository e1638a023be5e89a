"""Random small allocation questions: dicts for the naive search, objects for the allocator."""

from hypothesis import strategies as st

from kai_py.api.records.resource import DeviceClass, ResourceClaim
from kai_py.dra.device_state import DeviceAllocation, DeviceState
from kai_py.dra.features import ALL_FEATURES
from kai_py.dra.identity import DeviceID
from kai_py.dra.inventory import Inventory
from tests.support.allocated_devices import set_device_allocation
from tests.support.records import from_json
from tests.support.scenario import partitions

from .naive import Naive

CLASSES = {
    "any": from_json(DeviceClass, {"metadata": {"name": "any"}}),
    "zero": from_json(
        DeviceClass,
        {
            "metadata": {"name": "zero"},
            "spec": {"selectors": [{"cel": {"expression": 'device.attributes["d"].zero'}}]},
        },
    ),
}
SETS = ("s0", "s1")


@st.composite
def devices(draw):
    share = draw(st.integers(0, 2)) == 0
    m = draw(st.sampled_from([None, 1, 2, 3]))
    low = draw(st.sampled_from([None, 1])) if m else None
    partition = draw(st.booleans())
    state = draw(st.integers(0, 11))
    return {
        "a": draw(st.sampled_from([None, (0,), (0,), (1,), (1,), (2,), (0, 1), (1, 2), ()])),
        "zero": draw(st.booleans()),
        "share": share,
        "m": m,
        "min": low,
        "consumes": {
            draw(st.sampled_from(SETS)): {
                "c": draw(st.integers(1, 2)),
                "d": draw(st.integers(0, 1)),
            }
        }
        if partition
        else {},
        "tainted": draw(st.integers(0, 7)) == 0,
        "whole": state == 0,
        "held": 1 if state == 1 and share and m else 0,
    }


@st.composite
def options(draw, name):
    return {
        "name": name,
        "class": draw(st.sampled_from(["any", "any", "zero"])),
        "mode": draw(st.sampled_from(["ExactCount"] * 9 + ["All"])),
        "count": draw(st.sampled_from([1, 1, 1, 2, 2, 3])),
        "admin": draw(st.integers(0, 9)) == 0 and "/" not in name,
        "ask": draw(st.sampled_from([None, None, None, None, None, None, 1, 2])),
        "tolerates": draw(st.booleans()),
    }


@st.composite
def claims(draw):
    requests = []
    for index in range(draw(st.integers(1, 3))):
        if draw(st.integers(0, 3)):
            requests.append({"name": f"r{index}", "options": [draw(options(f"r{index}"))]})
        else:
            names = [f"r{index}/a", f"r{index}/b"]
            requests.append({"name": f"r{index}", "options": [draw(options(n)) for n in names]})
    names = [option["name"] for request in requests for option in request["options"]]
    names += [request["name"] for request in requests]
    constraints = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "kind": st.sampled_from(["match", "distinct"]),
                    "requests": st.lists(st.sampled_from(names), max_size=2, unique=True),
                }
            ),
            max_size=2,
        )
    )
    return {"requests": requests, "constraints": constraints}


@st.composite
def questions(draw):
    found = draw(st.lists(devices(), min_size=2, max_size=7))
    for index, device in enumerate(found):
        device["name"] = f"x{index}"
    counters = {name: {"c": draw(st.integers(1, 5)), "d": draw(st.integers(0, 3))} for name in SETS}
    return Naive(found, counters, draw(st.lists(claims(), min_size=1, max_size=2)))


def as_objects(question, *, choice, features=ALL_FEATURES):
    """Return claims, inventory and state of a naive question, on node "n"."""
    inventory = Inventory.of(as_slices(question, "n"), features=features, strategy=choice)
    state = DeviceState(inventory.device)
    hold_initial(question, state, "n")
    return as_claims(question), inventory, state


def as_slices(question, node):
    """The devices and the counters of one node, whose pool has its name."""
    return partitions(node, map(_device, question.devices), question.counters, driver="d")


def as_claims(question):
    """The claims as objects."""
    return [_claim(index, claim) for index, claim in enumerate(question.claims)]


def hold_initial(question, state, node):
    """Mark the devices that are held in the question."""
    for device in question.devices:
        if device["whole"] or device["held"]:
            consumed = (("m", device["held"] * 10**9),) if device["held"] else ()
            held = DeviceAllocation(int(device["whole"]), int(bool(consumed)), consumed)
            set_device_allocation(state, DeviceID("d", node, device["name"]), held)


def _device(device):
    capacity = {}
    if device["m"] is not None:
        capacity = {"m": {"value": str(device["m"])}}
        if device["min"] is not None:
            low = str(device["min"])
            capacity["m"]["requestPolicy"] = {"default": low, "validRange": {"min": low}}
    return {
        "name": device["name"],
        "attributes": {"zero": {"bool": device["zero"]}} | _attribute(device["a"]),
        "capacity": capacity,
        "allowMultipleAllocations": device["share"],
        "consumesCounters": [
            {"counterSet": name, "counters": {k: {"value": str(v)} for k, v in amounts.items()}}
            for name, amounts in device["consumes"].items()
        ],
        "taints": [{"key": "t", "effect": "NoSchedule"}] if device["tainted"] else [],
    }


def _attribute(values):
    if values is None:
        return {}
    return {"a": {"int": values[0]} if len(values) == 1 else {"ints": list(values)}}


def _claim(index, claim):
    requests = []
    for request in claim["requests"]:
        alternatives = [_request(option) for option in request["options"]]
        if len(alternatives) == 1:
            requests.append({"name": request["name"], "exactly": alternatives[0]})
        else:
            requests.append({"name": request["name"], "firstAvailable": alternatives})
    constraints = [
        {"requests": each["requests"], f"{each['kind']}Attribute": "d/a"}
        for each in claim["constraints"]
    ]
    return from_json(
        ResourceClaim,
        {
            "metadata": {"name": f"c{index}", "uid": f"c{index}"},
            "spec": {"devices": {"requests": requests, "constraints": constraints}},
        },
    )


def _request(option):
    request = {
        "name": option["name"].rpartition("/")[2],
        "deviceClassName": option["class"],
        "allocationMode": option["mode"],
        "count": option["count"],
        "tolerations": [{"operator": "Exists"}] if option["tolerates"] else [],
    }
    if option["admin"]:
        request["adminAccess"] = True
    if option["ask"] is not None:
        request["capacity"] = {"requests": {"m": str(option["ask"])}}
    return request


DEVICE = {
    "a": (0,), "zero": True, "share": False, "m": None, "min": None, "consumes": {},
    "tainted": False, "whole": False, "held": 0,
}  # fmt: skip
OPTION = {
    "name": "r0", "class": "any", "mode": "ExactCount", "count": 1, "admin": False,
    "ask": None, "tolerates": False,
}  # fmt: skip


def crowded(devices, wanted):
    """``wanted`` of ``devices`` identical devices."""
    return _of_identical(devices, {}, [{"count": wanted}])


def crowded_shares(devices, asks, capacity):
    """A claim for each of ``asks``, of devices that share ``capacity`` each."""
    return _of_identical(devices, {"share": True, "m": capacity}, [{"ask": ask} for ask in asks])


def _of_identical(devices, device, options):
    claims = [
        {"requests": [{"name": "r0", "options": [{**OPTION, **each}]}], "constraints": []}
        for each in options
    ]
    found = [{**DEVICE, **device, "name": f"x{index}"} for index in range(devices)]
    return Naive(found, {"s0": {"c": 1}, "s1": {"c": 1}}, claims)
