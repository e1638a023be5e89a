"""What is written in a namespace names no workloads of others, whatever the text."""

from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.references import PodRef
from kai_py.commit.namespace_texts import NamespaceTexts
from kai_py.plan.plan import Action, Eviction
from kai_py.snapshot.tables.queues import NamespaceRule, QueueInfo
from tests.support.records import replace
from tests.support.worlds import gang, world

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
SEPARATORS = st.sampled_from([" ", ", ", "; ", ": ", ". ", " (", ") ", ' "', '" '])
NOUNS = st.sampled_from(["", "workload ", "gang ", "Pod ", "for "])


def of(namespace, name, queue="theirs"):
    ours = gang(name, queue=queue)
    owner = replace(ours.owner, namespace=namespace)
    return replace(ours, key=f"{namespace}/{owner.kind}/{name}", owner=owner)


def texts(*gangs, queues=()):
    found = NamespaceTexts()
    found.update(gangs, queues, {})
    return found


def closed(name, namespace, parent=""):
    return QueueInfo(name=name, parent=parent, namespaces=NamespaceRule((namespace,)))


QUEUES = (
    QueueInfo(name="company"),
    closed("theirs", "vision", "company"),
    closed("ours", "ml", "company"),
    QueueInfo(name="open", parent="company"),
)
QUOTES = st.sampled_from(["", '"', "'"])


@given(st.lists(st.tuples(st.sampled_from([each.name for each in QUEUES]), QUOTES, SEPARATORS)))
def test_queues_that_are_closed_to_a_namespace_are_not_named_there(parts):
    text = "pods are protected"
    for name, quote, separator in parts:
        text += f"{separator}of queue {quote}{name}{quote} with 4 GPUs"
    known = texts(of("ml", "own", "ours"), of("vision", "run"), queues=QUEUES)
    shown = known.readable(text, "ml")
    assert "theirs" not in shown
    assert shown.count("another queue") == sum(name == "theirs" for name, _, _ in parts)
    assert shown.count("company") == sum(name == "company" for name, _, _ in parts)
    assert known.readable(text, "vision").count("theirs") == text.count("theirs")
    assert texts(of("ml", "own"), queues=QUEUES).readable(text, "ml") == text  # it names it itself


def test_workloads_of_such_queues_and_lines_of_kai_tell_none_either():
    known = texts(of("ml", "own", "ours"), of("vision", "run"), queues=QUEUES)
    text = "reclaimed by workload vision/run: queue theirs has 4.\ntheirs uses <4 GPUs>."
    assert known.readable(text, "ml") == (
        "reclaimed by workload of another queue: another queue has 4.\nAnother queue uses <4 GPUs>."
    )
    assert known.readable("Queue theirs", "ml") == "Another queue"
    assert known.readable("use queue open, did you mean queue open?", "ml").count("open") == 2


@given(st.lists(st.tuples(NOUNS, NAMES, st.booleans(), SEPARATORS), max_size=4))
def test_names_of_other_namespaces_are_left_out_of_every_text(parts):
    known = texts(of("ml", "own"), of("vision", "any"))
    text = "evicted: "
    for noun, name, is_key, separator in parts:
        text += f"{noun}vision/{'Job/' if is_key else ''}{name}{separator}"
    shown = known.readable(text + "for ml/Job/own on gpu.nvidia.com/node-1/gpu-0, 3/4", "ml")
    assert "vision/" not in shown
    assert shown.endswith("for ml/Job/own on gpu.nvidia.com/node-1/gpu-0, 3/4")
    assert known.readable(text, "vision") == text


def test_they_are_told_by_their_queue():
    known = texts(of("ml", "own"), of("vision", "run"))
    text = "preempted by higher priority workload vision/run (priority 5 > 3) in queue theirs"
    assert known.readable(text, "ml") == (
        "preempted by higher priority workload of queue theirs (priority 5 > 3) in queue theirs"
    )
    assert known.readable("for vision/Gang/run.", "ml") == "for a workload of queue theirs."
    assert known.readable("claim vision/data", "") == "claim of another namespace"


def test_a_plan_for_two_namespaces_names_no_workload_of_the_other():
    own, theirs = of("default", "own"), of("vision", "run")
    text = "preempted by workload vision/run"
    plan = world({"a": 1}, gang("own", pods=2)).plan()
    evicted = Eviction(
        pod=PodRef("default", "own-0", "own-0"),
        node="a",
        gang=own.key,
        owner=own.owner,
        queue="theirs",
        action=Action.PREEMPT,
        preemptor=theirs.key,
        preemptor_queue="theirs",
        reason=text,
    )
    [unplaced] = plan.unplaced
    told = replace(plan, unplaced=(replace(unplaced, message=text),), evictions=(evicted,))
    shown = texts(own, theirs).readable_plan(told)
    hidden = "preempted by workload of queue theirs"
    assert (shown.unplaced[0].message, shown.evictions[0].reason) == (hidden, hidden)
    assert texts(own).readable_plan(told) is told
