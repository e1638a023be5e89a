"""A queue is explained by what it has, is entitled to, borrows and lends, and what would change."""

from hypothesis import given
from hypothesis import strategies as st

from kai_py.observe.queue_explanation import explain_queue
from tests.support.scenario import cluster, node, pod, queue


def explained(*objects, name="own"):
    found = explain_queue(cluster(node("a", 8), *objects).plan(), name)
    assert found is not None
    return found


def test_a_queue_that_borrows_names_the_lenders():
    found = explained(queue("own", 2), queue("idle", 6), pod("runs", 8, queue="own", node="a"))
    assert found.sentences == (
        "It requests 8 GPUs and has 8; it deserves 2 and has no max.",
        "Its fair share is 8, and it has all of it.",
        "It borrows 6 GPUs, of what idle (6) deserves and does not use.",
        "None of its gangs is pending.",
    )


def test_a_queue_that_lends_names_the_borrowers():
    found = explained(queue("own", 4), queue("other", 4), pod("o", 8, queue="other", node="a"))
    assert "other (4) borrows GPUs, and loses them when this queue needs its own." in (
        found.sentences
    )


def test_a_max_is_what_would_change_it():
    found = explained(
        queue("own", 2, 2), pod("runs", 2, queue="own", node="a"), pod("waits", 2, queue="own")
    )
    assert found.pending == {"QueueMax": 1}
    assert found.sentences[-2:] == (
        "Pending gangs: 1 QueueMax.",
        "QueueMax: a larger maxGPUs, here or above, is what these need first.",
    )


def test_there_is_no_such_queue():
    assert explain_queue(cluster(node("a"), queue("own")).plan(), "gone") is None


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.one_of(st.none(), st.integers(0, 8)), st.integers(0, 9)),
        min_size=1,
        max_size=4,
    )
)
def test_every_queue_of_any_cluster_is_explained(queues):
    objects = [
        each
        for number, (deserved, maximum, gpus) in enumerate(queues)
        if maximum is None or maximum >= deserved
        for each in (
            queue(f"q{number}", deserved, maximum),
            pod(f"p{number}", gpus, queue=f"q{number}"),
        )
    ]
    plan = cluster(node("a", 8), *objects).plan()
    for share in plan.queues:
        found = explain_queue(plan, share.queue)
        assert found is not None
        assert all(sentence.endswith(".") for sentence in found.sentences)
        assert "0000" not in " ".join(found.sentences)


def test_what_can_never_run_is_said_with_the_gangs():
    found = explained(queue("own", 2), pod("huge", 9, queue="own"), pod("runs", 1, queue="own"))
    assert (
        "Of what it requests, the nodes of this cluster can never serve 9 GPUs, which do not count "
        "as demand: default/Pod/huge."
    ) in found.sentences
    assert found.fair_share == 1
