"""Records read JSON as Go's clients do: null is empty, in every list, map and field of them."""

import importlib
import pkgutil

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

import kai_py
from kai_py.api.records.core import Pod, Record
from kai_py.api.records.decoding import convert_record, record_decoder
from kai_py.api.records.storage import CSINode
from kai_py.watch.kinds import QUEUES, WATCHED

for module in pkgutil.walk_packages(kai_py.__path__, "kai_py."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)


def subclasses(kind):
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


RECORDS = sorted(set(subclasses(Record)), key=lambda kind: (kind.__module__, kind.__qualname__))
ZERO = {
    inspect.StrType: "",
    inspect.IntType: 0,
    inspect.FloatType: 0,
    inspect.BoolType: False,
    inspect.DictType: {},
    inspect.VarTupleType: [],
    inspect.ListType: [],
    inspect.StructType: {},
}


LEAVES = {
    inspect.NoneType: st.none(),
    inspect.AnyType: st.sampled_from((None, [], {"a": None})),
    inspect.RawType: st.sampled_from(([], {"a": None})),
    inspect.DateTimeType: st.just("2026-01-01T00:00:00Z"),
    inspect.BytesType: st.just("QQ=="),
    inspect.StrType: st.sampled_from(("", "x")),
    inspect.IntType: st.integers(-1, 3),
    inspect.FloatType: st.just(1.5),
    inspect.BoolType: st.booleans(),
}
"""Values of the types that hold no others; every type of a record must be here."""


def alternatives(shape):
    return shape.types if isinstance(shape, inspect.UnionType) else (shape,)


def zero(shape):
    """What Go reads for null where a value of the type stands."""
    types = {type(each) for each in alternatives(shape)}
    if types & {inspect.NoneType, inspect.AnyType, inspect.RawType}:
        return None
    return 0 if inspect.IntType in types else ZERO[types.pop()]


@st.composite
def item(draw, shape):
    """An item of a list or value of a map: as Go writes it, and the same without null."""
    if draw(st.booleans()) and not isinstance(shape, inspect.AnyType):
        return None, zero(shape)
    return draw(pairs(shape))


@st.composite
def pairs(draw, shape):
    """A value of the type with nulls, and what it means without them."""
    one = draw(st.sampled_from(list(alternatives(shape))))
    match one:
        case inspect.StructType(fields=fields):
            written, meant = {}, {}
            for field in fields:
                ways = ("value",) if field.required else ("absent", "null", "value", "value")
                way = draw(st.sampled_from(ways))
                if way == "null":
                    written[field.encode_name] = None
                elif way == "value":
                    written[field.encode_name], meant[field.encode_name] = draw(pairs(field.type))
            return written, meant
        case inspect.DictType(value_type=value):
            found = draw(st.dictionaries(st.sampled_from("abc"), item(value), max_size=2))
            return {k: v for k, (v, _) in found.items()}, {k: v for k, (_, v) in found.items()}
        case inspect.VarTupleType(item_type=each) | inspect.ListType(item_type=each):
            found = draw(st.lists(item(each), max_size=2))
            return [v for v, _ in found], [v for _, v in found]
        case _:
            value = draw(LEAVES[type(one)])
    return value, value


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_null_is_empty_in_every_record(kind):
    decode, strict = record_decoder(kind), msgspec.json.Decoder(kind).decode

    @settings(max_examples=20)
    @given(pairs(inspect.type_info(kind)))
    def check(pair):
        written, meant = (msgspec.json.encode(each) for each in pair)
        assert decode(written) == strict(meant)

    check()


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_record_of_nulls_is_the_default(kind):
    fields = msgspec.structs.fields(kind)
    nulls = {each.encode_name: None for each in fields if not each.required}
    if len(nulls) == len(fields):
        assert record_decoder(kind)(msgspec.json.encode(nulls)) == kind()


def test_all_watched_kinds_are_read_with_nulls():
    body = (
        b'{"metadata": {"name": "x", "uid": "u", "labels": null, "annotations": null, '
        b'"ownerReferences": null, "finalizers": null}, "spec": null, "status": null}'
    )
    for kind in WATCHED:
        spec = b'"spec": {}' if kind is QUEUES else b'"spec": null'  # required of a Queue
        for decode in kind.versions.values():
            record = decode(body.replace(b'"spec": null', spec))
            assert (record.metadata.name, record.metadata.labels) == ("x", {})


def test_a_node_without_csi_drivers_as_the_kubelet_writes_it():
    node = record_decoder(CSINode)(b'{"metadata": {"name": "n"}, "spec": {"drivers": null}}')
    assert node.spec.drivers == ()


def test_a_value_of_another_type_is_named_with_its_path():
    text = b'{"spec": {"tolerations": null, "containers": [{"name": 3}]}}'
    with pytest.raises(msgspec.ValidationError, match=r"\$\.spec\.containers\[0\]\.name"):
        record_decoder(Pod)(text)
    with pytest.raises(msgspec.ValidationError, match=r"\$\.spec\.containers\[0\]\.name"):
        convert_record(msgspec.json.decode(text), Pod)


def test_documents_are_converted_alike():
    document = {"spec": {"tolerations": None, "nodeSelector": {"a": None}, "overhead": None}}
    pod = convert_record(document, Pod)
    assert pod.spec.node_selector == {"a": ""}
    assert convert_record([document, None], tuple[Pod, ...]) == (pod, Pod())
