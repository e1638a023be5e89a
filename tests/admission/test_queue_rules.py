"""What is refused of a Queue, and what is only warned of."""

import math

from kai_py.admission.rules import judge_deletion, judge_queue
from kai_py.api.queue import API_VERSION
from kai_py.api.records.kai import QUEUE_API_VERSION
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.tables.queues import QueueInfo


def spec(name, parent="", deserved=0.0, most=None, api=API_VERSION, **rest):
    bound = {} if most is None else {GPU: most}
    return QueueInfo(
        name=name, parent=parent, deserved={GPU: deserved}, max=bound, api_version=api, **rest
    )


def test_a_cycle_through_other_queues_is_refused_in_either_api():
    for api in (API_VERSION, QUEUE_API_VERSION):
        others = [spec("a", "b", api=api), spec("b", "c", api=api), spec("c", api=api)]
        verdict = judge_queue(spec("c", "a", api=api), others[2], others)
        (refusal,) = verdict.refusals
        assert "'c' is its own ancestor (c > a > b > c)" in refusal


def test_a_cycle_that_was_there_before_does_not_hold_up_another_edit():
    others = [spec("a", "b"), spec("b", "a")]
    verdict = judge_queue(spec("a", "b", deserved=1), others[0], others)
    assert verdict.refusals == ()
    assert "own ancestor" in verdict.warnings[0]


def test_a_queue_below_a_cycle_is_judged_by_the_queues_of_the_cycle():
    others = [spec("a", "b", most=4), spec("b", "a")]
    verdict = judge_queue(spec("team", "b", deserved=3), None, others)
    assert verdict.refusals == ()
    below = [*others, spec("team", "a", deserved=5)]
    verdict = judge_queue(spec("team", "a", deserved=6), below[2], below)
    assert "queue 'a' above has spec.maxGPUs 4 GPUs" in verdict.refusals[0]


def test_a_parent_that_does_not_exist_is_warned_of():
    verdict = judge_queue(spec("a", "nowhere"), None, [])
    assert verdict.refusals == ()
    assert "parent 'nowhere' does not exist" in verdict.warnings[0]


def test_a_guarantee_above_the_max_of_any_queue_above_is_refused():
    others = [spec("org", most=4), spec("unit", "org")]
    verdict = judge_queue(spec("team", "unit", deserved=5), None, others)
    assert verdict.refusals == (
        "queue 'team': spec.deservedGPUs is 5 GPUs, but queue 'org' above has spec.maxGPUs 4 GPUs; "
        "lower the one or raise the other",
    )
    assert judge_queue(spec("team", "unit", deserved=4), None, others).refusals == ()


def test_fields_are_named_as_the_api_of_the_queue_names_them():
    kai = spec("org", most=4, api=QUEUE_API_VERSION)
    verdict = judge_queue(spec("team", "org", deserved=5), None, [kai])
    assert "queue 'org' above has spec.resources.gpu.limit 4 GPUs" in verdict.refusals[0]
    child = spec("team", "org", deserved=5, api=QUEUE_API_VERSION)
    verdict = judge_queue(child, None, [kai])
    assert "queue 'team': spec.resources.gpu.quota is 5 GPUs" in verdict.warnings[0]
    child = spec("team", "org", deserved=math.inf, api=QUEUE_API_VERSION)
    verdict = judge_queue(child, None, [kai])
    assert "spec.resources.gpu.quota is -1 (unlimited)" in verdict.warnings[0]


def test_a_max_lowered_below_the_guarantee_of_a_child_is_refused():
    others = [spec("org", most=8), spec("team", "org", deserved=8)]
    verdict = judge_queue(spec("org", most=4), others[0], others)
    assert "queue 'team': spec.deservedGPUs is 8 GPUs" in verdict.refusals[0]


def test_kai_queues_are_only_warned_of_bounds():
    others = [spec("org", most=4, api=QUEUE_API_VERSION)]
    new = spec("team", "org", deserved=math.inf, api=QUEUE_API_VERSION)
    verdict = judge_queue(new, None, others)
    assert verdict.refusals == ()
    assert "above has spec.resources.gpu.limit 4 GPUs" in verdict.warnings[0]


def test_children_that_are_promised_more_than_their_parent_has_are_warned_of():
    others = [spec("org", deserved=4), spec("a", "org", deserved=3)]
    verdict = judge_queue(spec("b", "org", deserved=2), None, others)
    assert verdict.refusals == ()
    assert "children are guaranteed 5 GPUs together" in verdict.warnings[0]
    assert judge_queue(spec("b", "org", deserved=1), None, others).warnings == ()


def test_a_name_that_the_other_api_has_is_warned_of():
    verdict = judge_queue(spec("a", created=2.0), None, [spec("a", api=QUEUE_API_VERSION)])
    assert "declared more than once" in verdict.warnings[0]


def test_deleting_a_parent_names_its_children():
    others = [spec("org"), spec("b", "org"), spec("a", "org")]
    assert "'a', 'b'" in judge_deletion("org", others).warnings[0]
    assert judge_deletion("a", others).warnings == ()
