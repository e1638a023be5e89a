"""Connected components of items that share tokens (union-find)."""

from collections.abc import Hashable, Iterable, Sequence


def connected_components(tokens: Sequence[Iterable[Hashable]]) -> list[int]:
    """Component number of each item, in the order of the components' first items."""
    parents = list(range(len(tokens)))

    def root(item: int) -> int:
        while parents[item] != item:
            parents[item] = parents[parents[item]]
            item = parents[item]
        return item

    first: dict[Hashable, int] = {}
    for item, ties in enumerate(tokens):
        for token in ties:
            a, b = root(item), root(first.setdefault(token, item))
            parents[max(a, b)] = min(a, b)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(item), len(numbers)) for item in range(len(tokens))]
