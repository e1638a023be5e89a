"""Objects in a query come back as they were sent; anything else is refused, whatever it is."""

import base64
import contextlib
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.sent_objects import MAX_BYTES, decode_objects, encode_objects


def job(**spec):
    meta = {"name": "train", "namespace": "ml"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def sent(value):
    return base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(value))).decode()


def test_objects_come_back():
    assert decode_objects(encode_objects([job(parallelism=4)])) == [job(parallelism=4)]


@pytest.mark.parametrize(
    "documents",
    [
        [job(parallelism=4097)],
        [job(parallelism=1 << 70)],
        [job(parallelism=3000), job(completions=3000)],
        [job(parallelism="many")],
        [job(parallelism=-1)],
        [{**job(), "kind": "Node"}],
        [{**job(), "kind": ["Job"]}],
        [{**job(), "metadata": {"name": "train"}}],
        [{**job(), "metadata": {"name": "train", "namespace": 1}}],
        [{**job(), "spec": None}],
        [{}],
        {},
        [[]],
        [job(text="x" * MAX_BYTES)],
    ],
)
def test_others_are_refused(documents):
    with pytest.raises(ValueError, match=r"they|only these|missing|whole numbers"):
        decode_objects(sent(documents))


@pytest.mark.slow
@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda b: base64.b64encode(b).decode()))
def test_no_text_does_anything_else(text):
    with contextlib.suppress(ValueError):
        assert decode_objects(text) == []
