"""Which pods are derived again when an object, or all objects of a kind, may have changed."""

from kai_py.snapshot.dependencies import Dependencies

CLAIM, OTHER_CLAIM = ("resourceclaims", "ns", "c"), ("resourceclaims", "ns", "d")
VOLUME = ("persistentvolumes", "", "v")


def test_the_dependents_of_an_object_and_of_a_kind():
    known = Dependencies()
    known.set("both", [CLAIM, VOLUME])
    known.set("claim", [OTHER_CLAIM])
    known.set("volume", [VOLUME])
    known.set("none", [])
    assert known.dependents([CLAIM]) == ("both",)
    assert known.dependents([VOLUME, CLAIM]) == ("both", "volume")
    assert known.dependents_of_kind("resourceclaims") == ("both", "claim")
    assert known.dependents_of_kind("persistentvolumes") == ("both", "volume")
    assert known.dependents_of_kind("nodes") == ()


def test_what_a_pod_depends_on_no_more():
    known = Dependencies()
    known.set("pod", [CLAIM, VOLUME])
    known.set("pod", [VOLUME])
    assert known.dependents([CLAIM]) == ()
    assert known.dependents_of_kind("resourceclaims") == ()
    known.clear("pod")
    assert known.dependents([VOLUME]) == ()
    known.clear("never set")
