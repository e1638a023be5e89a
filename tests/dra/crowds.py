"""Random questions that mix every rule of allocation, small enough to try all answers."""

from hypothesis import strategies as st

from kai_py.api.records.resource import DeviceClass, ResourceClaim, ResourceSlice
from kai_py.dra.device_state import DeviceAllocation, DeviceState
from kai_py.dra.features import AllocationStrategy
from kai_py.dra.identity import DeviceID
from kai_py.dra.inventory import Inventory
from tests.support.allocated_devices import set_device_allocation
from tests.support.records import from_json

CLASSES = {"any": from_json(DeviceClass, {"metadata": {"name": "any"}})}
VALUES = [("int", 0), ("int", 1), ("string", "0"), ("string", "1"), ("version", "1.0.0")]
attributes = st.one_of(
    st.none(),
    st.sampled_from(VALUES).map(lambda value: frozenset((value,))),
    st.frozensets(st.sampled_from([("int", n) for n in range(3)]), max_size=3),
)
ranges = st.fixed_dictionaries(
    {
        "default": st.sampled_from([1, 2, 3]),
        "min": st.sampled_from([1, 2]),
        "max": st.sampled_from([2, 3, 5]),
        "step": st.sampled_from([None, 2, 2, 3]),
        "valid": st.just(()),
    }
)
valid_values = st.fixed_dictionaries(
    {
        "default": st.sampled_from([1, 3]),
        "min": st.none(),
        "max": st.none(),
        "step": st.none(),
        "valid": st.sampled_from([(1, 3), (2,), (2, 4)]),
    }
)
no_policy = st.just({"default": None, "min": None, "max": None, "step": None, "valid": ()})


policies = st.one_of(ranges, ranges, valid_values, no_policy)


@st.composite
def capacities(draw):
    policy = draw(policies)
    return {"value": draw(st.integers(2, 5)), **policy}


draws = st.fixed_dictionaries(
    {
        "counters": st.dictionaries(st.sampled_from("cd"), st.integers(0, 2), min_size=1),
        "groups": st.sampled_from([frozenset(), *map(frozenset, ("", "x", "y", "xy"))]),
    }
)


shared_capacities = st.one_of(capacities(), capacities(), st.none())
consumptions = st.dictionaries(st.sampled_from(["s0", "s1"]), draws)
sizes = st.sampled_from([None, 1, 2, 2, 3, "2"])
reaches = st.sampled_from(["node", "node", "all", "selector", "other"])
taints = st.sampled_from([None] * 3 + ["None", "NoSchedule", "NoExecute"])
holds = st.sampled_from([None] * 8 + ["whole", "share"])
modes = st.sampled_from(["ExactCount"] * 7 + ["All"])
counts = st.sampled_from([1, 1, 1, 2, 2, 3])
requested = st.sampled_from([None, 1, 2, 3])
tolerations = st.sampled_from([None, "all", "NoExecute"])
totals = st.fixed_dictionaries({"c": st.integers(1, 4), "d": st.integers(0, 3)})

RULES = ("sharing", "counters", "attributes", "selection")
"""What a question is about: with all rules in each, few questions would have an answer."""
few_rules = st.sets(st.sampled_from(RULES), min_size=1, max_size=2)


@st.composite
def devices(draw, name, rules):
    made = {
        "name": name, "share": False, "capacity": None, "a": None, "b": None, "size": 2,
        "reach": "node", "taint": None, "draws": {},
    }  # fmt: skip
    if "sharing" in rules:
        made["share"] = draw(st.integers(0, 3)) > 0
        made["capacity"] = draw(shared_capacities)
    if "counters" in rules:
        made["draws"] = draw(consumptions)
    if "attributes" in rules:
        made |= {"a": draw(attributes), "b": draw(attributes)}
    if "selection" in rules:
        made["size"] = draw(sizes)
        made["reach"] = draw(reaches)
        made["taint"] = draw(taints)
    held = draw(holds)
    if held == "share":
        held = 1 if made["share"] and made["capacity"] else None
    return made | {"held": held}


@st.composite
def options(draw, name, rules):
    selects, shares = "selection" in rules, "sharing" in rules
    return {
        "name": name,
        "mode": draw(modes),
        "count": draw(counts),
        "admin": "/" not in name and draw(st.integers(0, 7)) == 0,
        "ask": draw(requested) if shares else None,
        "large": selects and draw(st.booleans()),
        "tolerates": draw(tolerations) if selects else None,
    }


@st.composite
def claims(draw, most, rules):
    requests = []
    for index in range(draw(st.integers(1, most))):
        name = f"r{index}"
        names = [f"{name}/x", f"{name}/y"] if draw(st.integers(0, 3)) == 0 else [name]
        requests.append([draw(options(each, rules)) for each in names])
    names = [option["name"] for request in requests for option in request]
    names += [f"r{index}" for index in range(len(requests))]
    bound = st.lists(st.sampled_from(names), max_size=2, unique=True)
    rule = st.tuples(st.sampled_from(["match", "distinct"]), st.sampled_from("ab"), bound)
    constraints = draw(st.lists(rule, max_size=2)) if "attributes" in rules else []
    return {"requests": requests, "rules": constraints}


@st.composite
def crowds(draw):
    """A question: devices of one node, what their counters hold, and the claims of a pod."""
    rules = draw(few_rules)
    found = [draw(devices(f"x{index}", rules)) for index in range(draw(st.integers(1, 5)))]
    asked = [
        draw(claims(2, rules)),
        *(draw(claims(1, rules)) for _ in range(draw(st.integers(0, 1)))),
    ]
    return {
        "devices": found,
        "counters": {"s0": draw(totals), "s1": draw(totals)},
        "claims": asked,
    }


def as_objects(question):
    """Return claims, inventory and state; the node is "n" with the label "rack: r"."""
    inventory = Inventory.of(_slices(question), strategy=AllocationStrategy.BEST_FIT)
    state = DeviceState(inventory.device)
    for device in question["devices"]:
        if device["held"] is not None:
            whole = device["held"] == "whole"
            amounts = () if whole else (("m", device["held"] * 10**9),)
            held = DeviceAllocation(int(whole), int(not whole), amounts)
            set_device_allocation(state, DeviceID("d", "p", device["name"]), held)
    return [_claim(*each) for each in enumerate(question["claims"])], inventory, state


def _slices(question):
    counters = [
        {"name": name, "counters": {key: {"value": str(v)} for key, v in values.items()}}
        for name, values in question["counters"].items()
    ]
    parts = [
        {"perDeviceNodeSelection": True, "devices": [_device(d) for d in question["devices"]]},
        {"allNodes": True, "sharedCounters": counters},
    ]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2}
    return [
        from_json(
            ResourceSlice,
            {"metadata": {"name": str(i)}, "spec": {"driver": "d", "pool": pool, **part}},
        )
        for i, part in enumerate(parts)
    ]


def _device(device):
    known = {name: _attribute(device[name]) for name in "ab" if device[name] is not None}
    size = device["size"]
    if size is not None:
        known["size"] = {"int": size} if isinstance(size, int) else {"string": size}
    return {
        "name": device["name"],
        "attributes": known,
        "capacity": {} if device["capacity"] is None else {"m": _capacity(device["capacity"])},
        "allowMultipleAllocations": device["share"],
        "taints": [{"key": "t", "effect": device["taint"]}] if device["taint"] else [],
        "consumesCounters": [
            {
                "counterSet": name,
                "counters": {key: {"value": str(v)} for key, v in draw["counters"].items()},
                "compatibilityGroups": sorted(draw["groups"]),
            }
            for name, draw in device["draws"].items()
        ],
        **REACHES[device["reach"]],
    }


_RACK = {"key": "rack", "operator": "In", "values": ["r"]}
REACHES = {
    "node": {"nodeName": "n"},
    "other": {"nodeName": "other"},
    "all": {"allNodes": True},
    "selector": {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [_RACK]}]}},
}


def _attribute(values):
    if len(values) == 1:
        [(kind, value)] = values
        return {kind: value}
    return {"ints": sorted(value for _, value in values)}


def _capacity(capacity):
    policy = {}
    if capacity["default"] is not None:
        policy["default"] = str(capacity["default"])
    if capacity["min"] is not None:
        bounds = {key: capacity[key] for key in ("min", "max", "step")}
        policy["validRange"] = {key: str(v) for key, v in bounds.items() if v is not None}
    if capacity["valid"]:
        policy["validValues"] = [str(value) for value in capacity["valid"]]
    return {"value": str(capacity["value"])} | ({"requestPolicy": policy} if policy else {})


def _claim(index, claim):
    requests = []
    for number, alternatives in enumerate(claim["requests"]):
        asked = [_request(option) for option in alternatives]
        kind = {"firstAvailable": asked} if len(asked) > 1 else {"exactly": asked[0]}
        requests.append({"name": f"r{number}", **kind})
    rules = [
        {f"{kind}Attribute": f"d/{attribute}", "requests": names}
        for kind, attribute, names in claim["rules"]
    ]
    return from_json(
        ResourceClaim,
        {
            "metadata": {"name": f"c{index}", "uid": f"c{index}"},
            "spec": {"devices": {"requests": requests, "constraints": rules}},
        },
    )


def _request(option):
    asked = {
        "name": option["name"].rpartition("/")[2],
        "deviceClassName": "any",
        "allocationMode": option["mode"],
    }
    if option["mode"] == "ExactCount":
        asked["count"] = option["count"]
    if option["admin"]:
        asked["adminAccess"] = True
    if option["ask"] is not None:
        asked["capacity"] = {"requests": {"m": str(option["ask"])}}
    if option["large"]:
        asked["selectors"] = [{"cel": {"expression": 'device.attributes["d"].size > 1'}}]
    if option["tolerates"]:
        effect = {} if option["tolerates"] == "all" else {"effect": option["tolerates"]}
        asked["tolerations"] = [{"operator": "Exists", **effect}]
    return asked
