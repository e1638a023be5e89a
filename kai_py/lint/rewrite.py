"""Rewriting of a file with corrected values, leaving the rest untouched.

The corrected value of each document is compared with the original value along the YAML nodes, and
only differences are edited: a scalar in its place, a key renamed, removed or added. Comments, order
and style of everything else stay. The result is parsed again; a document that does not have the
corrected value then (shared anchors, unusual layout) is written out as a whole instead.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import yaml
from msgspec import Struct

from kai_py.api.manifests import Document, ManifestError, read_documents

_FOLDED = re.compile(r"(: >\n)( +)(\S.*)")
"""A folded scalar that the dumper wrote in one line."""
_MARKER = re.compile(r"^(?:---|\.\.\.)(?=\s|$)", re.MULTILINE)
"""Markers that end a document."""


class Edit(Struct, frozen=True, order=True):
    """Replacement of ``text[start:end]``."""

    start: int
    end: int
    text: str


def rewrite(text: str, corrected: list[Any]) -> str:
    """The text with the corrected values, one per document."""
    if not corrected:
        return text
    documents = read_documents(text)
    edits = [
        edit
        for document, value in zip(documents, corrected, strict=True)
        for edit in _document_edits(text, document, value)
    ]
    return _apply(text, edits)


def dump(value: Any, *, flow: bool = False) -> str:
    """A value as YAML that parsers in Go and in Python read alike."""
    written: str = yaml.dump(
        value,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=math.inf,
        default_flow_style=flow,
    )
    return _FOLDED.sub(_split_at_and, written.removesuffix("...\n"))


def _split_at_and(match: re.Match[str]) -> str:
    """Put each condition of a folded selector on its own line."""
    header, indent, text = match.groups()
    return header + indent + text.replace(" && ", f"\n{indent}&& ")


class _Dumper(yaml.SafeDumper):
    """SafeDumper that also quotes texts which other YAML parsers would not read as texts."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if text.endswith("\n"):
        style = "|" if "\n" in text[:-1] else ">"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_multi_representer(dict, lambda dumper, value: dumper.represent_dict(value.items()))
_Dumper.add_multi_representer(list, lambda dumper, value: dumper.represent_list(value))
# YAML 1.1 readers take y and n for booleans, PyYAML does not.
_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^[yYnN]$"), list("yYnN"))
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def same_value(left: Any, right: Any) -> bool:
    """Whether two values are written the same: unlike ``==``, 1 is neither true nor 1.0."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            same_value(left[key], right[key]) for key in left
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_value, left, right))
    return type(left) is type(right) and bool(left == right)


def _document_edits(text: str, document: Document, value: Any) -> list[Edit]:
    if same_value(document.value, value):
        return []
    start = document.node.start_mark.index
    marker = _MARKER.search(text, start)
    end = len(text[: marker.start() if marker else len(text)].rstrip())
    edits = sorted(set(_edits(text, document.node, document.value, value)))
    local = [Edit(edit.start - start, edit.end - start, edit.text) for edit in edits]
    if _reads_as(_apply(text[start:end], local), value):
        return edits
    return [Edit(start, end, dump(value).rstrip("\n"))]


def _reads_as(text: str, value: Any) -> bool:
    try:
        documents = read_documents(text)
    except ManifestError:
        return False
    return len(documents) == 1 and same_value(documents[0].value, value)


def _apply(text: str, edits: Iterable[Edit]) -> str:
    # From the end, so that earlier offsets stay valid.
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _edits(text: str, node: yaml.Node, old: Any, new: Any) -> Iterator[Edit]:
    if same_value(old, new):
        return
    if isinstance(node, yaml.MappingNode) and isinstance(new, dict) and _is_block(node):
        yield from _mapping_edits(text, node, old, new)
    elif isinstance(node, yaml.SequenceNode) and isinstance(new, list) and len(old) == len(new):
        for item, old_item, new_item in zip(node.value, old, new, strict=True):
            yield from _edits(text, item, old_item, new_item)
    elif isinstance(node, yaml.ScalarNode) and isinstance(new, str):
        yield _scalar_edit(text, node, new)
    else:
        yield _rewritten_node(text, node, new)


def _mapping_edits(
    text: str, node: yaml.MappingNode, old: dict[str, Any], new: dict[str, Any]
) -> list[Edit]:
    added = {key: value for key, value in new.items() if key not in old}
    edits: list[Edit] = []
    last_kept = -1
    for key_node, value_node in node.value:
        key = key_node.value
        renamed = next((name for name, value in added.items() if same_value(value, old[key])), None)
        if key in new:
            edits += _edits(text, value_node, old[key], new[key])
        elif renamed is not None:
            del added[renamed]
            edits.append(Edit(key_node.start_mark.index, key_node.end_mark.index, _key(renamed)))
        else:
            edits.append(_removal(text, key_node, value_node))
            continue
        last_kept = _line_end(text, _end(text, value_node))
    if last_kept < 0:
        return [_rewritten_node(text, node, new)]
    if added:
        block = ("\n" + dump(added).rstrip("\n")).replace("\n", "\n" + " " * node.start_mark.column)
        edits.append(Edit(last_kept, last_kept, block))
    return edits


def _key(key: str) -> str:
    return dump({key: 0}).removesuffix(": 0\n")


def _removal(text: str, key_node: yaml.Node, value_node: yaml.Node) -> Edit:
    """Remove an entry of a block mapping: its lines, or up to the next key after a dash."""
    start, end = key_node.start_mark.index, _end(text, value_node)
    line_start = text.rfind("\n", 0, start) + 1
    if not text[line_start:start].strip():
        return Edit(line_start, min(_line_end(text, end) + 1, len(text)), "")
    following = re.compile(r"[^\n]*\n(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*").match(text, end)
    return Edit(start, following.end() if following else end, "")


def _scalar_edit(text: str, node: yaml.ScalarNode, new: str) -> Edit:
    start, end = node.start_mark.index, _end(text, node)
    if node.style not in ("|", ">"):
        written = yaml.dump(new, Dumper=_Dumper, default_style=node.style, width=math.inf)
        return Edit(start, end, written.removesuffix("...\n").rstrip("\n"))
    content_start = text.index("\n", start) + 1
    content = text[content_start:end]
    indent = " " * (len(content) - len(content.lstrip(" ")))
    lines = new.rstrip("\n").replace(" && ", "\n&& ") if node.style == ">" else new.rstrip("\n")
    return Edit(content_start, end, "\n".join(indent + line for line in lines.split("\n")))


def _rewritten_node(text: str, node: yaml.Node, new: Any) -> Edit:
    """Rewrite a node in its own style, at its own indentation."""
    start, end = node.start_mark.index, _end(text, node)
    if not isinstance(new, dict | list) or not _is_block(node):
        return Edit(start, end, dump(new, flow=True).rstrip("\n"))
    return Edit(
        start, end, dump(new).rstrip("\n").replace("\n", "\n" + " " * node.start_mark.column)
    )


def _is_block(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and not node.flow_style and bool(node.value)


def _end(text: str, node: yaml.Node) -> int:
    """Index after the last character of a node: its end mark may lie lines behind."""
    if _is_block(node):
        last = node.value[-1]
        return _end(text, last[1] if isinstance(last, tuple) else last)
    return len(text[: node.end_mark.index].rstrip())


def _line_end(text: str, index: int) -> int:
    newline = text.find("\n", index)
    return len(text) if newline < 0 else newline
