"""Selectors over all devices at once, beside cel-python device by device.

cel-python evaluates the same expressions over a sample of the devices, in the same process; its
figure is for all devices by proportion. Both must give the same answers on the sample.
"""

import logging
import time
from typing import Any

import celpy

from benchmarks.dra.objects import ATTRIBUTES, DRIVER, PRODUCTS
from benchmarks.row import Measured
from benchmarks.timing import median_seconds, peak_resident_mb
from kai_py.dra.selectors.device import CELDevice
from kai_py.dra.selectors.masks import mask
from kai_py.dra.selectors.selector import Selector, compile_selector
from kai_py.dra.selectors.table import DeviceBlock, DeviceTable, Encoding

SAMPLE = 500
EXPRESSIONS = (
    f'device.driver == "{DRIVER}"',
    f'{ATTRIBUTES}.type == "gpu"',
    f'{ATTRIBUTES}.productName == "{PRODUCTS[0]}"',
    f'{ATTRIBUTES}.productName.startsWith("NVIDIA H")',
    f'{ATTRIBUTES}.index < 4 && {ATTRIBUTES}.type == "gpu"',
    f'{ATTRIBUTES}.index % 2 == 0 || {ATTRIBUTES}.productName.contains("A100")',
    f'!({ATTRIBUTES}.productName in ["NVIDIA H200", "NVIDIA L40S"])',
    f"has({ATTRIBUTES}.index) && {ATTRIBUTES}.index >= 6",
    f'{ATTRIBUTES}.productName.matches("H[12]00") && {ATTRIBUTES}.index != 0',
    f'{ATTRIBUTES}.type == "mig" ? {ATTRIBUTES}.index > 1 : {ATTRIBUTES}.index <= 1',
)


def measure_masks(devices: int) -> Measured:
    """Evaluate all expressions on all devices, with nothing known of them before."""
    made = [_device(i) for i in range(devices)]
    selectors = [_compiled(text) for text in EXPRESSIONS]
    tables: list[DeviceTable] = []

    def prepare() -> None:
        blocks = [DeviceBlock(made[i : i + 8]) for i in range(0, devices, 8)]
        tables[:] = [DeviceTable(blocks, Encoding())]

    seconds, masks = median_seconds(
        lambda: [mask(selector, tables[0]) for selector in selectors], prepare=prepare
    )
    taken, answers = _reference(made[:SAMPLE])
    same = all(
        found.value[:SAMPLE].tolist() == told for found, told in zip(masks, answers, strict=True)
    )
    whole = taken * devices / SAMPLE
    matches = sum(int(found.value.sum()) for found in masks)
    return Measured(
        seconds=seconds,
        outcome=f"{matches:,} matches, {whole / seconds:,.0f} × faster"
        if same
        else "WRONG: cel-python gives other answers",
        peak_mb=peak_resident_mb(),
        peer=f"{whole:.0f} s (cel-python)",
    )


def _device(number: int) -> CELDevice:
    attributes = {
        "type": "gpu",
        "index": number % 8,
        "productName": PRODUCTS[number // 8 % len(PRODUCTS)],
        "uuid": f"GPU-{number}",
    }
    return CELDevice(DRIVER, attributes)


def _compiled(text: str) -> Selector:
    selector = compile_selector(text)
    if not isinstance(selector, Selector):
        raise TypeError(selector.message)
    return selector


def _reference(devices: list[CELDevice]) -> tuple[float, list[list[bool]]]:
    """Seconds that cel-python takes for all expressions, and its answers."""
    for name in ("celpy", "Environment", "Evaluator", "evaluation", "InterpretedRunner"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    environment = celpy.Environment()
    programs = [environment.program(environment.compile(text)) for text in EXPRESSIONS]
    inputs = [{"device": _as_cel(device)} for device in devices]
    start = time.perf_counter()
    answers = [[bool(program.evaluate(each)) for each in inputs] for program in programs]
    return time.perf_counter() - start, answers


def _as_cel(device: CELDevice) -> Any:
    content = {"driver": device.driver, "attributes": {DRIVER: dict(device.attributes)}}
    return celpy.json_to_cel(content)
