"""Generated selectors: the API server's verdict and text on each, and ours.

What a text says of syntax is left out, but for those recorded: ANTLR's recovery is not ours. So is
the cost, which is an estimate, and texts that name types of types or names from the root, or list
several errors, of which one may follow from another.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kai_py.cel.expression import CompileError
from kai_py.dra.selectors.selector import SelectorFeatures, compile_selector
from tests.cel.test_syntax_errors import SERVER
from tests.dra.selectors.generated import selectors
from tests.support.cluster.api import Api, ApiError
from tests.support.cluster.clusters import Cluster

CLASSES = "/apis/resource.k8s.io/v1/deviceclasses?dryRun=All"
FEATURES = SelectorFeatures(list_attributes=False)
"""Of an API server with default feature gates."""
PER_CLASS = 32
UNLIKE = ("Syntax error", "type(", "'.")
"""In texts that are not compared."""


async def verdicts(api: Api, texts: Sequence[str]) -> Mapping[str, str]:
    """What the server says of each; "" of those that it admits."""
    found = dict.fromkeys(texts, "")
    body: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "generated.example.com"},
        "spec": {"selectors": [{"cel": {"expression": text}} for text in texts]},
    }
    try:
        await api.post(CLASSES, body)
    except ApiError as error:
        for cause in error.details["causes"]:
            number = int(cause["field"].partition("[")[2].partition("]")[0])
            found[texts[number]] = cause["message"]
    return found


def ours(text: str) -> str:
    compiled = compile_selector(text, FEATURES)
    return compiled.message if isinstance(compiled, CompileError) else ""


def first(text: str) -> str:
    """The first error of a text, with its place."""
    _, failed, errors = text.partition("compilation failed: ")
    _, internal, failure = text.partition("program instantiation failed: ")
    return errors.partition("\n")[0] if failed else failure if internal else ""


async def differences(api: Api, texts: Sequence[str]) -> dict[str, tuple[str, str]]:
    found = {}
    for start in range(0, len(texts), PER_CLASS):
        for text, theirs in (await verdicts(api, texts[start : start + PER_CLASS])).items():
            said = ours(text)
            if "too complex" in theirs:
                continue
            both = theirs + said
            is_one = max(theirs.count("ERROR: "), said.count("ERROR: ")) < 2
            is_compared = is_one and not any(part in both for part in UNLIKE)
            if bool(theirs) != bool(said) or (is_compared and first(theirs) != first(said)):
                found[text] = (theirs, said)
    return found


async def test_the_server_says_of_selectors_what_we_say(real: Cluster):
    assert await differences(real.api, selectors(1, 400)) == {}


async def test_the_servers_words_for_syntax_errors_are_as_recorded(real: Cluster):
    found: dict[str, str] = {}
    for start in range(0, len(SERVER), PER_CLASS):
        found |= await verdicts(real.api, list(SERVER)[start : start + PER_CLASS])
    assert {text: first(said) or said for text, said in found.items()} == SERVER


@pytest.mark.nightly
async def test_the_server_says_of_thousands_of_selectors_what_we_say(real: Cluster):
    assert await differences(real.api, selectors(2, 5_000)) == {}
