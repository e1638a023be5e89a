"""Text form of changes, shared by the command line and HTTP.

set        QUEUE.FIELD=VALUE, the value in YAML; none removes the field. Parts of a field with
           dots of their own, and entries of lists by their name, stand in brackets:
           team.resources[nvidia.com/gpu].max=4, team.devices[h100].max=2
add-nodes  NODE=COUNT, nodes like an existing one
drain      NODE
remove     GANG, as `kai-py gangs` names it
"""

import re
from collections.abc import Callable, Iterable, Mapping

import yaml

from kai_py.simulate.changes import (
    AddNodes,
    ChangeError,
    ClusterChange,
    DrainNode,
    RemoveGang,
)
from kai_py.simulate.queue_change import SetQueue

_QUEUE_FIELD = re.compile(r"(?P<queue>[^=.\[]+)(?P<path>(\.[^=.\[\]]+|\[[^\]]+\])+)=(?P<value>.*)")
_PART = re.compile(r"\.([^=.\[\]]+)|\[([^\]]+)\]")
_NODES = re.compile(r"(?P<like>[^=]+)=(?P<count>[0-9]{1,4})")


def parse_set_queue(text: str) -> SetQueue:
    """Parse QUEUE.FIELD=VALUE; raises ChangeError."""
    match = _QUEUE_FIELD.fullmatch(text)
    if match is None:
        raise ChangeError(f"{text}: is not of the form NAME.FIELD=VALUE")
    try:
        value = yaml.safe_load(match["value"]) if match["value"] else None
    except yaml.YAMLError:
        raise ChangeError(f"{text}: the value is not YAML") from None
    path = tuple(part or bracketed for part, bracketed in _PART.findall(match["path"]))
    return SetQueue(match["queue"], path, value)


def parse_add_nodes(text: str) -> AddNodes:
    """Parse NODE=COUNT; raises ChangeError."""
    match = _NODES.fullmatch(text)
    if match is None:
        raise ChangeError(f"{text}: is not of the form NODE=COUNT")
    return AddNodes(match["like"], int(match["count"]))


CHANGES: Mapping[str, Callable[[str], ClusterChange]] = {
    "set": parse_set_queue,
    "add-nodes": parse_add_nodes,
    "drain": DrainNode,
    "remove": RemoveGang,
}


def parse_changes(pairs: Iterable[tuple[str, str]]) -> list[ClusterChange]:
    """The changes of (kind, text) pairs, in their order; raises ChangeError that names the pair."""
    found: list[ClusterChange] = []
    for kind, text in pairs:
        if kind not in CHANGES:
            raise ChangeError(f"{kind}: no such change; known changes are {', '.join(CHANGES)}")
        try:
            found.append(CHANGES[kind](text))
        except ChangeError as error:
            raise ChangeError(f"--{kind} {error}") from None
    return found
