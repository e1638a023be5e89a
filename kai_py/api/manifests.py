"""YAML documents, with the line numbers of mappings, keys and items.

Scalars are parsed as by the API server's YAML reader: no dates, no base-60 numbers, so that a field
has the same value here. A key that is written twice is recorded as a fault of the document, because
one of the two values would be lost silently.

Source: YAML 1.1 as read by sigs.k8s.io/yaml.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from msgspec import Struct

from kai_py.api.numbers import shortened

MAX_CHARACTERS = 16 * 1024 * 1024
"""The longest text: an object has at most 1.5 MiB, and reading 1 MiB of YAML takes seconds."""

MAX_MERGED = 100_000
"""Keys that merges (``<<``) copy, in all mappings of a text."""

MAX_EXPANDED = 10_000_000
"""Values of a document, those of an anchor counted wherever it is used."""

TEMPLATE = " (a template? render it first)"
"""``{{ .Values.x }}`` is a mapping whose key is a mapping, which no API server takes."""
_SURROGATE = re.compile("[\ud800-\udfff]")
BYTE_ORDER_MARK = "\ufeff"
_BLANKS = (" ", "\t")
_LINE_ENDS = "\r\n\x85\u2028\u2029\0"


class ManifestError(ValueError):
    """A text is not YAML; the message names line and reason."""

    def __init__(self, line: int, reason: str) -> None:
        self.line = line
        self.reason = reason
        super().__init__(f"line {line}: {reason}")


class TextTooLargeError(ManifestError):
    """A text is larger than any that is read as YAML."""


class LineMapping(dict[str, Any]):
    """A YAML mapping; ``line`` is its first line, ``lines`` the line of each key (from 1).

    ``written``: numbers and booleans by key, as they are written.
    """

    def __init__(self, line: int = 0) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}
        self.written: dict[str, str] = {}

    def line_of(self, key: str) -> int:
        """The line of a key, or of the mapping where the key is absent."""
        return self.lines.get(key, self.line)

    def text_of(self, key: str) -> str:
        """The text that is meant by a number or a boolean."""
        return _text_meant(self[key], self.written.get(key))


class LineSequence(list[Any]):
    """A YAML list; ``line`` is its first line, ``lines`` the line of each item (from 1).

    ``written``: numbers and booleans by index, as they are written.
    """

    def __init__(self, line: int = 0) -> None:
        super().__init__()
        self.line = line
        self.lines: list[int] = []
        self.written: dict[int, str] = {}

    def text_of(self, index: int) -> str:
        """The text that is meant by a number or a boolean."""
        return _text_meant(self[index], self.written.get(index))


def _text_meant(value: Any, written: str | None) -> str:
    """``1.10`` and ``010`` as they are written; ``True`` as the API spells it."""
    text = str(value) if written is None else written
    return text.lower() if text.lower() in ("true", "false") else text


class Document(Struct, frozen=True):
    """One document of a file."""

    value: Any
    node: yaml.Node
    repeated_keys: tuple[tuple[int, str], ...]
    """Line and name of every key that its mapping already had."""
    values: int
    """Number of values; those of an anchor count wherever it is used."""


class _Loader(yaml.SafeLoader):
    """SafeLoader without dates and base-60 numbers, with tabs where Go's reader takes them.

    Tabs are blanks, except at the beginning of a line that is not in brackets. Concatenated files
    may have a byte order mark at the beginning of any line.
    """

    def scan_to_next_token(self) -> None:
        """Pass blanks, comments and line breaks."""
        super().scan_to_next_token()
        while self._passes_tab_or_mark():
            super().scan_to_next_token()

    def _passes_tab_or_mark(self) -> bool:
        is_tab = self.peek() == "\t" and (self.flow_level or not self.allow_simple_key)
        if is_tab or (self.peek() == BYTE_ORDER_MARK and self.column == 0):
            self.forward()
            return True
        return False

    def scan_plain_spaces(self, indent: int, start_mark: yaml.Mark) -> Any:
        """The blanks after a word of a text without quotes."""
        length = 0
        while self.peek(length) in _BLANKS:
            length += 1
        blanks = self.prefix(length)
        if "\t" in blanks:
            self.forward(length)
            if self.peek() not in _LINE_ENDS:
                return [blanks]
        return super().scan_plain_spaces(indent, start_mark)


_IGNORED_TAGS = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:int")
_Loader.yaml_implicit_resolvers = {
    first: [resolver for resolver in resolvers if resolver[0] not in _IGNORED_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))


_FLOAT = re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789"))


def read_documents(text: str) -> list[Document]:
    """Parse the documents of a YAML text, without empty ones; raises ManifestError.

    A text that is enormous, or becomes so by its anchors and merges, is refused.
    """
    if len(text) > MAX_CHARACTERS:
        limit = f"{MAX_CHARACTERS >> 20} MiB"
        raise TextTooLargeError(1, f"is larger than {limit}: give it in several files")
    try:
        loader = _Loader(text)
        documents = []
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                documents.append(_Builder(loader).document(node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        template = TEMPLATE if "{{" in text else ""
        line = mark.line + 1 if mark else 1
        raise ManifestError(line, f"{error.problem}{template}") from None
    except ManifestError:
        raise
    except RecursionError:
        raise ManifestError(1, "is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ManifestError(1, str(error).splitlines()[0]) from None
    return [document for document in documents if document.value is not None]


def line_at(value: Any, path: tuple[str | int, ...]) -> int:
    """The line of a field, or of the nearest mapping above it that exists."""
    line = getattr(value, "line", 1)
    for part in path:
        if isinstance(value, LineMapping) and part in value:
            line, value = value.line_of(str(part)), value[str(part)]
        elif isinstance(value, LineSequence) and isinstance(part, int) and part < len(value.lines):
            line, value = value.lines[part], value[part]
        else:
            return line
    return line


class _Builder:
    """Builds one document's value; the value of an anchor is built once and shared.

    ``_sizes`` counts the values of a node, anchors followed.
    """

    def __init__(self, loader: _Loader) -> None:
        self._loader = loader
        self._built: dict[int, Any] = {}
        self._sizes: dict[int, int] = {}
        self._open: set[int] = set()
        self._repeated: list[tuple[int, str]] = []
        self._merged = 0
        self._merging: set[int] = set()

    def document(self, node: yaml.Node) -> Document:
        """Build the value of a document's root node."""
        value = self._value(node)
        if self._sizes[id(node)] > MAX_EXPANDED:
            reason = f"its anchors expand to more than {MAX_EXPANDED:,} values"
            raise ManifestError(node.start_mark.line + 1, reason)
        return Document(value, node, tuple(self._repeated), self._sizes[id(node)])

    def _value(self, node: yaml.Node) -> Any:
        if id(node) in self._open:
            raise ManifestError(node.start_mark.line + 1, "an anchor contains itself")
        if id(node) not in self._built:
            self._open.add(id(node))
            self._built[id(node)] = self._build(node)
            self._sizes[id(node)] = self._size(node)
            self._open.remove(id(node))
        return self._built[id(node)]

    def _size(self, node: yaml.Node) -> int:
        children: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            children = node.value
        elif isinstance(node, yaml.MappingNode):
            children = [value for _, value in node.value]
        return 1 + sum(self._sizes[id(child)] for child in children)

    def _build(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node)
        if isinstance(node, yaml.SequenceNode):
            return self._sequence(node)
        return self._scalar(node)

    def _scalar(self, node: yaml.Node) -> Any:
        """The value of a scalar; JSON writes characters beyond 16 bits as two escapes."""
        try:
            value = self._loader.construct_object(node, deep=True)
            if isinstance(value, int):
                str(value)  # Python reads hexadecimal numbers that it refuses to write.
        except (ValueError, LookupError, AttributeError):
            # PyYAML's own errors for texts that are not what their tag says.
            reason = f"{shortened(str(node.value))!r} cannot be read as {node.tag}"
            raise ManifestError(node.start_mark.line + 1, reason) from None
        if isinstance(value, str) and _SURROGATE.search(value):
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value

    def _mapping(self, node: yaml.MappingNode) -> LineMapping:
        mapping = LineMapping(node.start_mark.line + 1)
        own = {id(key_node) for key_node, _ in node.value}
        written: set[str] = set()
        self._merge(node)
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise ManifestError(line, f"a key is no text{TEMPLATE}")
            key = str(self._scalar(key_node))
            if id(key_node) in own:  # a merged key may be overridden by one of the mapping
                if key in written:
                    self._repeated.append((line, key))
                written.add(key)
            mapping[key] = self._value(value_node)
            mapping.lines[key] = line
            if isinstance(mapping[key], bool | int | float):
                mapping.written[key] = value_node.value
        return mapping

    def _merge(self, node: yaml.MappingNode) -> None:
        """Put the keys of merged mappings in place of ``<<``, before the mapping's own.

        As ``SafeConstructor.flatten_mapping`` of PyYAML, with a limit: mappings that merge one
        another can have as many keys as the square of the text's length.
        """
        merged: list[tuple[yaml.Node, yaml.Node]] = []
        own: list[tuple[yaml.Node, yaml.Node]] = []
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                sources = [value_node]
                if isinstance(value_node, yaml.SequenceNode):
                    sources = list(reversed(value_node.value))
                for source in sources:
                    merged.extend(self._merged_pairs(node, source))
            else:
                if key_node.tag == "tag:yaml.org,2002:value":
                    key_node.tag = "tag:yaml.org,2002:str"
                own.append((key_node, value_node))
        node.value = merged + own

    def _merged_pairs(
        self, node: yaml.MappingNode, source: yaml.Node
    ) -> list[tuple[yaml.Node, yaml.Node]]:
        line = node.start_mark.line + 1
        if not isinstance(source, yaml.MappingNode):
            raise ManifestError(line, "only mappings can be merged")
        if id(source) in self._merging:
            raise ManifestError(line, "an anchor contains itself")
        self._merging.add(id(source))
        self._merge(source)
        self._merging.discard(id(source))
        self._merged += len(source.value)
        if self._merged > MAX_MERGED:
            raise ManifestError(line, f"its merges copy more than {MAX_MERGED:,} keys")
        return list(source.value)

    def _sequence(self, node: yaml.SequenceNode) -> LineSequence:
        sequence = LineSequence(node.start_mark.line + 1)
        for item in node.value:
            sequence.append(self._value(item))
            sequence.lines.append(item.start_mark.line + 1)
            if isinstance(sequence[-1], bool | int | float):
                sequence.written[len(sequence) - 1] = item.value
        return sequence
