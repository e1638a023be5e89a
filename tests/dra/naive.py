"""The allocator as a naive depth-first search over everything, straight from its definition.

Understands what ``instances`` draws: lists of ints, whole numbers, classes "any" and "zero".
"""

from dataclasses import dataclass, field


class Fatal(Exception):
    """The walk met what upstream calls an error."""


@dataclass
class Naive:
    devices: list  # dicts in walk order
    counters: dict  # set -> counter -> value
    claims: list
    taken: list = field(default_factory=list)  # (claim, request name, device, consumed)

    def solve(self):
        """Return [(request name, device name), ...] or None; raises Fatal."""
        self.taken = []
        for claim in self.claims:
            for request in claim["requests"]:
                for option in request["options"]:
                    option["all"] = [d for d in self.devices if self.selectable(option, d)]
        for claim in self.claims:
            least = [
                min(self.count(o) for o in request["options"]) for request in claim["requests"]
            ]
            if sum(least) > 32:
                raise Fatal
        if not self.fill(
            [(c, r) for c, claim in enumerate(self.claims) for r in claim["requests"]]
        ):
            return None
        return [(name, device["name"]) for _, name, device, _ in self.taken]

    def count(self, option):
        return len(option["all"]) if option["mode"] == "All" else option["count"]

    def fill(self, rest):
        if not rest:
            return True
        claim, request = rest[0]
        return any(self.slot(claim, option, 0, 0, rest) for option in request["options"])

    def slot(self, claim, option, slot, start, rest):
        everything = option["mode"] == "All"
        if everything and not option["all"]:
            return False
        if slot == self.count(option):
            return self.fill(rest[1:])
        if slot == 0 and sum(c == claim for c, *_ in self.taken) + self.count(option) > 32:
            return False
        candidates = option["all"][slot : slot + 1] if everything else self.devices[start:]
        for device in candidates:
            if not self.fits(claim, option, device):
                continue
            consumed = self.consumption(option, device) if device["share"] else {}
            self.taken.append((claim, option["name"], device, consumed))
            position = self.devices.index(device) + 1
            if self.slot(claim, option, slot + 1, position, rest):
                return True
            self.taken.pop()
        return False

    def selectable(self, option, device):
        if option["class"] == "zero" and not device["zero"]:
            return False
        return self.consumption(option, device) is not None or not (
            option["ask"] is not None or device["share"]
        )

    def consumption(self, option, device):
        """Consumed amount of capacity m, None where refused; {} for a device without capacity."""
        if device["m"] is None:
            return None if option["ask"] is not None else {}
        ask, low = option["ask"], device["min"]
        if ask is None:
            amount = low if low is not None else device["m"]
        else:
            amount = ask if low is None else max(ask, low)
        return {"m": amount} if amount <= device["m"] else None

    def fits(self, claim, option, device):
        if self.in_use(claim, option, device) or not self.selectable(option, device):
            return False
        if not self.has_capacity(option, device) or not self.counters_allow(device):
            return False
        if device["tainted"] and not option["tolerates"]:
            return False
        for constraint in self.claims[claim]["constraints"]:
            if not self.constraint_allows(claim, constraint, option, device):
                if option["mode"] == "All":
                    raise Fatal
                return False
        return True

    def in_use(self, claim, option, device):
        if option["admin"]:
            mine = [d for c, _, d, _ in self.taken if c == claim]
            return not device["share"] and any(d is device for d in mine)
        if device["share"]:
            return device["whole"]
        return device["whole"] or any(d is device for _, _, d, _ in self.taken)

    def has_capacity(self, option, device):
        if not device["share"] or device["m"] is None:
            return True
        used = [consumed["m"] for _, _, d, consumed in self.taken if d is device]
        asked = self.consumption(option, device)["m"]
        return device["held"] + sum(used) + asked <= device["m"]

    def counters_allow(self, device):
        if not device["consumes"]:
            return True
        active = [d for d in self.devices if d["whole"] or d["held"]]
        for _, _, d, _ in self.taken:
            if not (d["share"] and any(d is other for other in active)):
                active.append(d)
        if device["share"] and any(d is device for d in active):
            return True
        left = {key: dict(values) for key, values in self.counters.items()}
        for each in active:
            for name, amounts in each["consumes"].items():
                for counter, amount in amounts.items():
                    left[name][counter] -= amount
        before = [d for d in self.devices if d["whole"] or d["held"]]
        start = {key: dict(values) for key, values in self.counters.items()}
        for each in before:
            for name, amounts in each["consumes"].items():
                for counter, amount in amounts.items():
                    start[name][counter] -= amount
        if any(value < 0 for values in start.values() for value in values.values()):
            return False
        return all(
            left[name][counter] >= amount
            for name, amounts in device["consumes"].items()
            for counter, amount in amounts.items()
        )

    def constraint_allows(self, claim, constraint, option, device):
        def bound(name):
            wanted = constraint["requests"]
            return not wanted or name in wanted or name.split("/")[0] in wanted

        if not bound(option["name"]):
            return True
        if device["a"] is None:
            return False
        others = [set(d["a"]) for c, name, d, _ in self.taken if c == claim and bound(name)]
        if constraint["kind"] == "match":
            return bool(set(device["a"]).intersection(*others))
        return not set(device["a"]).intersection(*[set().union(*others)])
