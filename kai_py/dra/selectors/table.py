"""Tables of devices: one row each, their values encoded as small integers.

A column has one code per device; equal values have equal codes. Codes come from an ``Encoding``
that outlives the tables: the outcome for a combination of codes stays valid when slices change. A
``DeviceBlock``, the devices of one slice, is encoded once, however many tables it is part of.

Complexity: a column costs one dictionary look-up per device of a new block, and a copy for the
others.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from kai_py.api.bounded import remember
from kai_py.dra.selectors.columns import Column, column_keys
from kai_py.dra.spending import SelectorAllowance

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kai_py.cel.values import Value
    from kai_py.dra.selectors.device import CELDevice

MAX_COLUMNS = 256
MAX_MASKS = 512
"""Cached per table, or slice: expressions, and so the names in them, are chosen by tenants."""
LEAF_SIZE = 25

Codes = npt.NDArray[np.int64]
Combination = tuple[int, ...]


class Encoding:
    """The code of every value seen, per column, and the outcomes for combinations of codes."""

    def __init__(self) -> None:
        self._codes: dict[Column, dict[Value, int]] = {}
        self.outcomes: WeakKeyDictionary[object, dict[Combination, int]] = WeakKeyDictionary()
        """Per part of an expression, its outcome for each combination of its columns.

        They go with the compiled expression: users write ever new ones.
        """
        self.allowance = SelectorAllowance()
        self.costs: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        """Per part of an expression, the greatest cost of evaluating it so far."""

    def encode(self, column: Column, devices: Sequence[CELDevice]) -> Codes:
        """(devices,) int64: each device's code in a column."""
        codes = self._codes.setdefault(column, {})
        keys = column_keys(devices, column)
        for key in dict.fromkeys(keys):
            codes.setdefault(key, len(codes))
        return np.fromiter(map(codes.__getitem__, keys), np.int64, len(keys))

    def width(self, column: Column) -> int:
        """The number of codes in a column."""
        return len(self._codes[column])

    @property
    def size(self) -> int:
        """How many codes it knows; an expression weighs as much as ``LEAF_SIZE`` of them."""
        return LEAF_SIZE * len(self.outcomes) + sum(map(len, self._codes.values()))


class DeviceBlock:
    """Devices that are added and removed together: those of one slice."""

    __slots__ = ("_codes", "_encoding", "devices")

    def __init__(self, devices: Sequence[CELDevice]) -> None:
        self.devices = tuple(devices)
        self._encoding: Encoding | None = None
        self._codes: dict[Column, Codes] = {}

    def codes(self, column: Column, encoding: Encoding) -> Codes | None:
        """The codes of a column if they are cached."""
        return self._codes.get(column) if self._encoding is encoding else None

    def keep(self, column: Column, encoding: Encoding, codes: Codes) -> None:
        """Cache the codes of a column."""
        if self._encoding is not encoding:
            self._encoding, self._codes = encoding, {}
        remember(self._codes, column, codes, MAX_COLUMNS)


class DeviceTable:
    """The devices of many slices, one row each, in the order of the blocks."""

    def __init__(self, blocks: Iterable[DeviceBlock], encoding: Encoding | None = None) -> None:
        self.blocks = tuple(blocks)
        self.encoding = encoding or Encoding()
        self.devices = tuple(chain.from_iterable(block.devices for block in self.blocks))
        self.faulty = np.fromiter(
            (device.fault is not None for device in self.devices), bool, len(self.devices)
        )
        """(devices,) bool: no expression can be evaluated on it."""
        self.masks: dict[object, object] = {}
        """Cache of ``masks.mask``."""
        self._columns: dict[Column, Codes] = {}

    @classmethod
    def of(cls, devices: Iterable[CELDevice]) -> DeviceTable:
        """Build a table of devices that are in no block."""
        return cls([DeviceBlock(tuple(devices))])

    def __len__(self) -> int:
        return len(self.devices)

    def column(self, column: Column) -> Codes:
        """(devices,) int64: the codes of a column."""
        if column not in self._columns:
            self._encode_new(column)
            by_block = [block.codes(column, self.encoding) for block in self.blocks]
            parts = [codes for codes in by_block if codes is not None]
            codes_column = np.concatenate(parts) if parts else np.zeros(0, np.int64)
            codes_column.flags.writeable = False
            remember(self._columns, column, codes_column, MAX_COLUMNS)
        return self._columns[column]

    def _encode_new(self, column: Column) -> None:
        """Encode all blocks that lack a column in one go."""
        new = [block for block in self.blocks if block.codes(column, self.encoding) is None]
        devices = list(chain.from_iterable(block.devices for block in new))
        codes = self.encoding.encode(column, devices)
        start = 0
        for block in new:
            end = start + len(block.devices)
            block.keep(column, self.encoding, codes[start:end])
            start = end

    def combinations(self, columns: tuple[Column, ...]) -> tuple[Codes, Codes]:
        """Group devices that agree on columns.

        :returns: (devices,) int64, the group of each device, and (groups,) int64, its first device.
        """
        groups, size = np.zeros(len(self), np.int64), 1
        for column in columns:
            width = self.encoding.width(column) if self.devices else 1
            groups, size = groups * width + self.column(column), size * width
            if size > 4 * len(self):
                groups = np.unique(groups, return_inverse=True)[1]
                size = int(groups.max(initial=-1)) + 1
        first = np.full(size, -1, np.int64)
        # Assigned in reverse, so that the first device of a group wins.
        first[groups[::-1]] = np.arange(len(self), dtype=np.int64)[::-1]
        used = first >= 0
        return (np.cumsum(used) - 1)[groups], first[used]
