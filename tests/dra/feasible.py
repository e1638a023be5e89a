"""What makes devices an answer to claims, said of a whole assignment; and all assignments.

Understands the documents that ``crowds`` draws. An assignment is a list of (claim, option, device)
in the order of the results.
"""

from itertools import combinations, product


def assignments(claims, devices):
    """Yield all ways to choose alternatives and devices, good or bad."""
    choices = [
        [
            [(claim, option, device) for device in chosen]
            for option in request
            for chosen in _sets_of_devices(option, devices)
        ]
        for claim in claims
        for request in claim["requests"]
    ]
    for chosen in product(*choices):
        yield [pick for part in chosen for pick in part]


def _sets_of_devices(option, devices):
    if option["mode"] == "All":
        meant = [device for device in devices if is_meant(option, device)]
        return [meant] if meant else []
    return combinations(devices, option["count"])


def is_meant(option, device):
    """Whether a device is one of all that an option may mean, whoever holds it."""
    size = device["size"]
    selected = not option["large"] or (isinstance(size, int) and size > 1)
    return selected and device["reach"] != "other" and consumed(option, device) is not None


def consumed(option, device):
    """What a share takes of the capacity, None where it is refused, as whole devices are too."""
    capacity, ask = device["capacity"], option["ask"]
    if capacity is None:
        return 0 if ask is None else None
    value, default = capacity["value"], capacity["default"]
    low, high, step, valid = (capacity[key] for key in ("min", "max", "step", "valid"))
    if ask is None:
        amount = value if default is None else default
    elif low is not None:
        amount = max(ask, low)
        amount += (low - amount) % step if step else 0
    else:
        amount = min((each for each in valid if each >= ask), default=ask)
    if amount != default:
        if low is not None and (amount > high or (step and (amount - low) % step)):
            return None
        if valid and amount not in valid:
            return None
    return amount if amount <= value else None


def is_valid(picks, question):
    """Whether an assignment breaks no rule."""
    return (
        all(is_meant(option, device) and _tolerated(option, device) for _, option, device in picks)
        and _is_free(picks)
        and _capacity_suffices(picks)
        and _counters_suffice(picks, question)
        and all(
            _holds(rule, claim, picks) for claim in question["claims"] for rule in claim["rules"]
        )
    )


def _tolerated(option, device):
    if device["taint"] in (None, "None"):
        return True
    return option["tolerates"] in ("all", device["taint"])


def _is_free(picks):
    for index, (claim, option, device) in enumerate(picks):
        before = [(c, o) for c, o, d in picks[:index] if d is device]
        if any(o is option for _, o in before):
            return False
        if option["admin"]:
            if not device["share"] and any(c is claim for c, _ in before):
                return False
        elif device["share"]:
            if device["held"] == "whole":
                return False
        elif before or device["held"]:
            return False
    return True


def _capacity_suffices(picks):
    used = {}
    for _, option, device in picks:
        if device["share"] and device["capacity"] is not None:
            start = device["held"] if isinstance(device["held"], int) else 0
            used.setdefault(device["name"], start)
            used[device["name"]] += consumed(option, device)
            if used[device["name"]] > device["capacity"]["value"]:
                return False
    return True


def _counters_suffice(picks, question):
    held = [device for device in question["devices"] if device["held"]]
    joining = []
    for _, _, device in picks:
        shared = device["share"] and any(device is each for each in (*held, *joining))
        if not shared:
            joining.append(device)
    left = {name: dict(counters) for name, counters in question["counters"].items()}
    for device in (*held, *joining):
        for name, draw in device["draws"].items():
            for counter, amount in draw["counters"].items():
                left[name][counter] -= amount
    return all(
        left[name][counter] >= 0
        for device in joining
        for name, draw in device["draws"].items()
        for counter in draw["counters"]
    ) and _groups_agree(held, [device for _, _, device in picks])


def _groups_agree(held, chosen):
    common = {}
    for device in held:
        for name, draw in device["draws"].items():
            common[name] = common.get(name, draw["groups"]) & draw["groups"]
    for device in chosen:
        for name, draw in device["draws"].items():
            before = common.get(name)
            common[name] = draw["groups"] if before is None else before & draw["groups"]
            if before is not None and not common[name] and (before or draw["groups"]):
                return False
    return True


def _holds(rule, claim, picks):
    kind, attribute, names = rule
    seen = [
        device[attribute]
        for c, option, device in picks
        if c is claim
        and (not names or option["name"] in names or option["name"].split("/")[0] in names)
    ]
    if not all(seen):  # without the attribute, or of an empty list
        return False
    if kind == "match":
        return not seen or bool(frozenset.intersection(*seen))
    return all(a.isdisjoint(b) for a, b in combinations(seen, 2))
