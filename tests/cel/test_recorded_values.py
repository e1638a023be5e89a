"""What expressions give, as recorded from cel-go in the DRA environment of Kubernetes 1.37.

``tests/corpus/cel/values.json``: by expression its value as ``shown`` writes it, or ``{"error":
text}`` where it fails on the device, or ``{"invalid": text}`` where it does not compile. The
expressions are those found by random comparison to give something else.
"""

import base64
import math

import msgspec
import pytest

from kai_py.api.quantity import Quantity, parse_quantity
from kai_py.cel.expression import CompileError, compile_expression
from kai_py.cel.library.versions import Semver
from kai_py.cel.values import (
    BoolKey,
    CELRuntimeError,
    Duration,
    Optional,
    Timestamp,
    TypeName,
    Uint,
)
from kai_py.dra.selectors.device import CELDevice, attribute_value
from kai_py.dra.selectors.selector import device_environment
from tests.support.repository import ROOT

RECORDED = msgspec.json.decode((ROOT / "tests/corpus/cel/values.json").read_bytes())
DEVICE = CELDevice(
    "d",
    {
        "index": attribute_value(int_=3),
        "uni": attribute_value(string="héß😀"),
        "links": attribute_value(ints=(1, 2, 3)),
        "names": attribute_value(strings=("b", "a", "c")),
    },
    {"memory": parse_quantity("80Gi"), "half": parse_quantity("500m")},
)


def shown(value):
    """A value as JSON: numbers, times and texts as a letter for the type, then their text."""
    match value:
        case None | bool():
            return value
        case BoolKey(value=inner):
            return inner
        case tuple():
            return ["list", *map(shown, value)]
        case dict():
            return ["map", sorted([shown(key), shown(each)] for key, each in value.items())]
        case Optional():
            return ["optional", *([shown(value.value)] if value.present else ())]
        case float():
            return "d" + ("NaN" if math.isnan(value) else value.hex())
        case bytes():
            return "b" + base64.b64encode(value).decode()
        case Duration() | Timestamp():
            return f"{type(value).__name__[0]}{value.nanos}"
        case TypeName():
            return f"t{value.name}"
    letters = {Uint: "u", int: "i", str: "s", Quantity: "q", Semver: "v"}
    return f"{letters[type(value)]}{value}"


@pytest.mark.parametrize("text", RECORDED)
def test_a_value_is_as_recorded(text):
    expression = compile_expression(text, device_environment())
    if isinstance(expression, CompileError):
        found = {"invalid": str(expression).removeprefix("compilation failed: ")}
    else:
        try:
            found = shown(expression.evaluate(DEVICE.activation)[0])
        except CELRuntimeError as error:
            found = {"error": error.reason}
    assert found == RECORDED[text]
