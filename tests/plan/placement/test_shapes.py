from kai_py.plan.placement.attempt import by_shape
from tests.support.records import replace
from tests.support.worlds import member


def names(groups):
    return [[each.pod.name for each in group] for group in groups]


def numbered(name, number, gpus=1, **labels):
    made = member(name, gpus, "")
    return replace(made, shape=replace(made.shape, number=number, labels=labels))


def test_the_hardest_come_first_and_equals_in_the_order_of_their_pods():
    """Whichever shape was met first: its number says nothing."""
    pods = [numbered("a", 7), numbered("b", 3), numbered("c", 5, gpus=2), numbered("d", 7)]
    assert names(by_shape(pods)) == [["c"], ["a", "d"], ["b"]]


def test_pods_of_one_number_with_other_labels_are_told_apart():
    pods = [numbered("a", 1, app="web"), numbered("b", 1, app="db"), numbered("c", 1, app="web")]
    assert names(by_shape(pods)) == [["a", "c"], ["b"]]
