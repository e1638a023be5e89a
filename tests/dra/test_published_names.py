"""What no device publishes is found in selectors, with the nearest that some device does."""

import pytest

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.resource import (
    Device,
    DeviceAttribute,
    DeviceCapacity,
    ResourceSlice,
    ResourceSliceSpec,
)
from kai_py.dra import published_names as published_names_module
from kai_py.dra.inventory import Inventory
from kai_py.dra.published_names import MAX_TEXTS, published_names, unpublished

DRIVER = "gpu.nvidia.com"
ATTRIBUTE = f'device.attributes["{DRIVER}"]'


def gpu(number=0):
    return Device(
        name=f"gpu-{number}",
        attributes={
            "architecture": DeviceAttribute(string_value="Hopper"),
            "uuid": DeviceAttribute(string_value=f"GPU-{number:04}"),
            "other.example.com/rack": DeviceAttribute(string_value="r1"),
        },
        capacity={"memory": DeviceCapacity(value="80Gi")},
    )


def slice_of(*devices, name="s"):
    return ResourceSlice(
        metadata=ObjectMeta(name=name), spec=ResourceSliceSpec(driver=DRIVER, devices=devices)
    )


KNOWN = published_names([slice_of(*map(gpu, range(MAX_TEXTS + 1)))])


def hints(expression, known=KNOWN):
    return [each.hint for each in unpublished(expression, known)]


@pytest.mark.parametrize(
    "expression",
    [
        f'{ATTRIBUTE}.architecture == "Hopper"',
        'device.attributes["other.example.com"].rack == "r1"',
        f'has({ATTRIBUTE}.brand) || {ATTRIBUTE}.architecture == "Hopper"',
        f'{ATTRIBUTE}.uuid == "GPU-9999"',
        f'device.driver == "{DRIVER}"',
        f"{ATTRIBUTE}.architecture ==",
        f'{ATTRIBUTE}.architecture == "Hopper" && "a" == "a"',
        f'{ATTRIBUTE} == "Hopper"',
    ],
)
def test_what_is_published_or_tested_for_is_no_fault(expression):
    assert list(unpublished(expression, KNOWN)) == []


@pytest.mark.parametrize(
    ("expression", "meant"),
    [
        (f'{ATTRIBUTE}.architectur == "Hopper"', f"attribute {DRIVER}/architecture"),
        (f'device.attributes["{DRIVER}"].rak == "r1"', None),
        ('device.attributes["other.example.co"].rack == "r1"', "attribute other.example.com/rack"),
        (f'{ATTRIBUTE}.memory == "80Gi"', f"capacity {DRIVER}/memory"),
        (f'{ATTRIBUTE}.architecture == "hoper"', '"Hopper"'),
        ('device.driver == "gpu.nvidia.con"', f'"{DRIVER}"'),
    ],
)
def test_the_nearest_is_what_was_meant(expression, meant):
    [hint] = hints(expression)
    assert hint == "" if meant is None else hint.endswith(f"; did you mean {meant}?")


def test_the_inventory_knows_the_names_of_all_its_slices():
    inventory = Inventory()
    inventory.put(slice_of(gpu()))
    assert hints(f"{ATTRIBUTE}.brand == 1", inventory.published_names()) == [""]
    branded = Device(name="b", attributes={"brand": DeviceAttribute(int_value=1)})
    inventory.put(slice_of(branded, name="t"))
    assert hints(f"{ATTRIBUTE}.brand == 1", inventory.published_names()) == []
    inventory.discard("t")
    assert hints(f"{ATTRIBUTE}.brand == 1", inventory.published_names()) == [""]


@pytest.mark.parametrize(("devices", "is_kind"), [(MAX_TEXTS, True), (MAX_TEXTS + 1, False)])
def test_an_attribute_of_too_many_texts_identifies_devices(devices, is_kind):
    known = published_names([slice_of(*map(gpu, range(devices)))])
    assert bool([*unpublished(f'{ATTRIBUTE}.uuid == "GPU-9999"', known)]) is is_kind


def test_a_selector_is_parsed_once_and_only_if_it_reads_the_device(monkeypatch):
    parsed, compile_ = [], published_names_module.compile_selector
    monkeypatch.setattr(
        published_names_module,
        "compile_selector",
        lambda text: parsed.append(text) or compile_(text),
    )
    # No other test may have asked for it before: what was read is kept.
    selector = f'"Hoper" in [{ATTRIBUTE}.architecture] || {ATTRIBUTE}.architecture == "Hoper"'
    assert hints("[1, 2].all(a, a > 0)") == []
    assert hints(selector) == hints(selector) != []
    assert parsed == [selector]
