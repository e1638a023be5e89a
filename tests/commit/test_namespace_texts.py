"""What is written in a namespace names no workloads of others, whatever the text."""

from hypothesis import given
from hypothesis import strategies as st

from kai_py.commit.namespace_texts import NamespaceTexts
from tests.support.replacing import replace
from tests.support.worlds import gang

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
SEPARATORS = st.sampled_from([" ", ", ", "; ", ": ", ". ", " (", ") ", ' "', '" '])
NOUNS = st.sampled_from(["", "workload ", "gang ", "Pod ", "for "])


def of(namespace, name, queue="theirs"):
    ours = gang(name, queue=queue)
    owner = replace(ours.owner, namespace=namespace)
    return replace(ours, key=f"{namespace}/{owner.kind}/{name}", owner=owner)


def texts(*gangs):
    found = NamespaceTexts()
    found.update(gangs)
    return found


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
