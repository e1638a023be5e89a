"""What is refused of a PodGroup of KAI's, and what is only warned of."""

from kai_py.admission.rules import judge_pod_group
from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.kai import KaiPodGroup, KaiPodGroupSpec, KaiSubGroup


def group(*subgroups, floor=None):
    parts = tuple(KaiSubGroup(name=name, parent=parent) for name, parent in subgroups)
    spec = KaiPodGroupSpec(sub_groups=parts, min_sub_group=floor)
    return KaiPodGroup(metadata=ObjectMeta(name="g", namespace="n"), spec=spec)


def test_names_twice_missing_parents_and_cycles_are_refused():
    for subgroups, said in (
        ((("a", None), ("a", None)), '"a" is used more than once'),
        ((("a", "b"),), 'there is no subgroup "b"'),
        ((("a", "b"), ("b", "a")), "it is its own ancestor"),
    ):
        verdict = judge_pod_group(group(*subgroups), None)
        assert any(said in text for text in verdict.refusals), verdict


def test_a_floor_above_the_subgroups_is_warned_of():
    verdict = judge_pod_group(group(("a", None), floor=2), None)
    assert verdict.refusals == ()
    assert "PodGroup n/g: spec.minSubGroup is 2, but there are only 1" in verdict.warnings[0]


def test_what_was_wrong_before_does_not_hold_up_another_edit():
    wrong = group(("a", "b"))
    assert judge_pod_group(wrong, wrong).refusals == ()


def test_long_names_are_cut():
    verdict = judge_pod_group(group(("a" * 5000, "b" * 5000), ("c" * 5000, None)), None)
    assert all(len(text) < 300 for text in verdict.refusals), verdict
