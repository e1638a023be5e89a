"""A slow oracle of the native fair share: exact fractions, one queue at a time, no arrays."""

from fractions import Fraction
from math import isinf


def shares(queues, total, usage_weight):
    """{queue: share} of one resource; ``queues`` is {name: dict} with a parent per queue."""
    usable = {}
    for name in queues:
        usable_by(queues, name, usable)
    fair = {}
    divide_among_children(queues, "", Fraction(total), usable, Fraction(usage_weight), fair)
    return fair


def children(queues, parent):
    return [name for name in sorted(queues) if queues[name]["parent"] == parent]


def least(*amounts):
    return min(Fraction(amount) for amount in amounts if not isinf(amount))


def usable_by(queues, name, usable):
    queue = queues[name]
    below = children(queues, name)
    wanted = sum((usable_by(queues, child, usable) for child in below), Fraction(queue["demand"]))
    most = queue["max"] if queue["weight"] > 0 else min(queue["max"], queue["deserved"])
    usable[name] = least(wanted, most)
    return usable[name]


def divide_among_children(queues, parent, budget, usable, k, fair):
    names = children(queues, parent)
    if not names:
        return
    promised = {
        n: budget if isinf(queues[n]["deserved"]) else least(budget, queues[n]["deserved"])
        for n in names
    }
    core = pour(budget, promised, {n: min(promised[n], usable[n]) for n in names})
    left = budget - sum(core.values())
    extra = dict.fromkeys(names, Fraction(0))
    for priority in sorted({queues[n]["priority"] for n in names}, reverse=True):
        bucket = [n for n in names if queues[n]["priority"] == priority]
        limits = {n: usable[n] - core[n] for n in bucket if queues[n]["weight"] > 0}
        claim = claims(queues, [n for n in limits if limits[n] > 0], k)
        poured = pour(left, claim, limits)
        rest = {n: Fraction(queues[n]["weight"]) for n in limits if not claim.get(n)}
        poured |= pour(left - sum(poured.values()), rest, limits)
        extra |= poured
        left -= sum(poured.values())
    for name in names:
        fair[name] = core[name] + extra[name]
        divide_among_children(queues, name, fair[name], usable, k, fair)


def claims(queues, competing, k):
    weight = sum(Fraction(queues[n]["weight"]) for n in competing)
    parts = {n: Fraction(queues[n]["weight"]) / weight for n in competing}
    return {
        n: max(Fraction(0), w + k * (w - Fraction(queues[n]["usage"]))) for n, w in parts.items()
    }


def pour(budget, rate, cap):
    """Raise one level until the budget is spent or all are full."""
    got = {n: Fraction(0) for n in rate}
    open_ = {n for n in rate if rate[n] > 0 and cap[n] > 0}
    while open_ and budget > 0:
        rise = min((cap[n] - got[n]) / rate[n] for n in open_)
        rise = min(rise, budget / sum(rate[n] for n in open_))
        for n in open_:
            got[n] += rise * rate[n]
        budget -= rise * sum(rate[n] for n in open_)
        open_ = {n for n in open_ if got[n] < cap[n]}
    return got
