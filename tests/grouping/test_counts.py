"""Sizes of memory as frameworks on the JVM write them."""

import pytest

from kai_py.grouping.counts import MAX_BYTES, parse_memory_size
from kai_py.grouping.gang_template import InvalidWorkloadError

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4g", 4 * GIB),
        ("4GB", 4 * GIB),
        ("4Gi", 4 * GIB),
        (" 1024 mb ", GIB),
        ("2 gibibytes", 2 * GIB),
        ("536870912b", 1 << 29),
        ("1.5Gi", 3 * GIB // 2),
        ("9" * 19 + "t", MAX_BYTES),
        ("9" * 300 + "g", MAX_BYTES),
    ],
)
@pytest.mark.parametrize("default_unit", ["b", "m"])
def test_a_size_has_the_units_of_the_jvm_or_of_kubernetes(text, size, default_unit):
    assert parse_memory_size(text, "memory", default_unit=default_unit) == size


def test_a_number_without_a_unit_counts_what_the_framework_counts():
    assert parse_memory_size("1073741824", "memory", default_unit="b") == GIB
    assert parse_memory_size("1024", "memory", default_unit="m") == GIB


@pytest.mark.parametrize("text", ["", "lots", "-1g", "4x", None, "٤g"])
def test_anything_else_is_reported_with_its_place(text):
    with pytest.raises(InvalidWorkloadError, match=r"^spec\.memory must be a size"):
        parse_memory_size(text, "spec.memory", default_unit="b")
