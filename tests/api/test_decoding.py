"""Records read JSON as Go's clients do: null is empty, in every list, map and field of them."""

import importlib
import pkgutil

import msgspec
import pytest
from msgspec import inspect

import kai_py
from kai_py.api.records.core import Pod
from kai_py.api.records.record import Record, convert_record, record_decoder
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
    inspect.NoneType: (None,),
    inspect.AnyType: (None, [], {"a": None}),
    inspect.RawType: ([], {"a": None}),
    inspect.DateTimeType: ("2026-01-01T00:00:00Z",),
    inspect.BytesType: ("QQ==",),
    inspect.StrType: ("", "x"),
    inspect.IntType: (-1, 3),
    inspect.FloatType: (1.5,),
    inspect.BoolType: (False, True),
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


def items(shape):
    """Items of a list or values of a map: as Go writes them, and the same without null."""
    if not isinstance(shape, inspect.AnyType):
        yield None, zero(shape)
    yield from pairs(shape)


def pairs(shape):
    """Values of the type with nulls, and what they mean without them.

    Of a struct the shortest one; its fields have their turn as a record of their own.
    """
    for one in alternatives(shape):
        match one:
            case inspect.StructType():
                yield whole(one)
            case inspect.DictType(value_type=value):
                yield {}, {}
                found = list(items(value))
                written, meant = ({f"{k}": each[i] for k, each in enumerate(found)} for i in (0, 1))
                yield written, meant
            case inspect.VarTupleType(item_type=value) | inspect.ListType(item_type=value):
                yield [], []
                found = list(items(value))
                yield [each for each, _ in found], [each for _, each in found]
            case _:
                yield from ((each, each) for each in LEAVES[type(one)])


def whole(struct):
    """The struct with no field but those that it requires, and what it means."""
    required = {f.encode_name: next(pairs(f.type)) for f in struct.fields if f.required}
    return {n: w for n, (w, _) in required.items()}, {n: m for n, (_, m) in required.items()}


def records(kind):
    """Records with each field null, and with each value of each field; and what they mean."""
    struct = inspect.type_info(kind)
    base, base_meant = whole(struct)
    for field in struct.fields:
        if not field.required:
            yield {**base, field.encode_name: None}, base_meant
        for written, meant in pairs(field.type):
            yield (
                {**base, field.encode_name: written},
                {**base_meant, field.encode_name: meant},
            )
    nulls = {field.encode_name: None for field in struct.fields if not field.required}
    yield {**nulls, **base}, base_meant


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_null_is_empty_in_every_field_of_every_record(kind):
    decode, strict = record_decoder(kind), msgspec.json.Decoder(kind).decode
    for pair in records(kind):
        written, meant = (msgspec.json.encode(each) for each in pair)
        assert decode(written) == strict(meant), written


def test_records_hold_no_structs_but_records():
    """So each is a case of its own."""
    found = {
        each.cls
        for kind in RECORDS
        for field in inspect.type_info(kind).fields
        for each in structs(field.type)
    }
    assert found <= set(RECORDS)


def structs(shape):
    for one in alternatives(shape):
        match one:
            case inspect.StructType():
                yield one
            case inspect.DictType(value_type=value):
                yield from structs(value)
            case inspect.VarTupleType(item_type=value) | inspect.ListType(item_type=value):
                yield from structs(value)


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
