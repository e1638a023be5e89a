"""Objects as they are looked up."""

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.priority_class import PriorityClass
from kai_py.snapshot.object_cache import DEFAULT_PRIORITY_CLASS, ObjectCache


def priority(name, *, default):
    meta = ObjectMeta(name=name, uid=name)
    return PriorityClass(metadata=meta, value=7, global_default=default)


def test_the_default_priority_class_is_the_one_that_is_so_now():
    objects, default, plain = (
        ObjectCache(),
        priority("high", default=True),
        priority("high", default=False),
    )
    assert DEFAULT_PRIORITY_CLASS in objects.apply("priorityclasses", None, default)
    assert objects.get(*DEFAULT_PRIORITY_CLASS) is default
    assert DEFAULT_PRIORITY_CLASS in objects.apply("priorityclasses", default, plain)
    assert objects.get(*DEFAULT_PRIORITY_CLASS) is None
    assert objects.get("priorityclasses", "", "high") is plain
    other = priority("other", default=True)
    objects.apply("priorityclasses", plain, default)
    objects.apply("priorityclasses", None, other)
    objects.apply("priorityclasses", default, None)
    assert objects.get(*DEFAULT_PRIORITY_CLASS) is other
