"""Redacted pods form the gangs that they form under their own names."""

from collections.abc import Iterable

import pytest

from kai_py.api.node_departures import DepartureTreatment
from kai_py.api.spot import SpotUse
from kai_py.grouping.gang import Subgroup
from kai_py.simulate.objects import Document
from kai_py.simulate.redaction import is_common, redact
from tests.corpus.test_grouping import CASES, grouped_documents, whole_objects
from tests.support import yaml_text

COMPOSED = {"jobset-rounds"}
"""Cases in which a name is composed of others, which redaction does not know."""


@pytest.mark.parametrize(
    "path",
    [path for path in CASES if path.stem not in COMPOSED],
    ids=lambda path: path.stem,
)
def test_pods_of_a_framework_form_the_same_gangs(path):
    documents = whole_objects(yaml_text.read(path.read_text()))
    assert told(redact(documents)) == told(documents)


def told(documents: Iterable[Document]):
    """By the uids of its pods, each gang's form, and which pods it has in one leaf."""
    gangs = {}
    for gang in grouped_documents(documents).gangs.values():
        leaves: dict[str, list[str]] = {}
        for member in gang.members:
            leaves.setdefault(member.subgroup, []).append(member.pod.uid)
        waiting = sorted(each.pod.uid for each in gang.members if each.waiting_for)
        form = shape(gang.tree), bool(gang.problem), sorted(map(sorted, leaves.values())), waiting
        gangs[tuple(sorted(each.pod.uid for each in gang.members))] = form
    return gangs


def shape(tree: Subgroup):
    """The tree without names; of siblings in any order."""
    below = sorted(map(shape, tree.children), key=repr)
    return tree.min_members, tree.min_subgroups, tree.topology is None, below


@pytest.mark.parametrize(
    "word",
    [*DepartureTreatment, *SpotUse, "suspend", "restart", "semi-preemptible", "4g", "1 gb", "2Gi"],
)
def test_what_settings_choose_from_is_no_name(word):
    assert is_common(word)


def test_annotations_that_cannot_be_read_are_replaced_as_texts():
    texts = ["[" * 5000, '["acme"', '{"a":' * 5000]
    for text in texts:
        annotations = {"scheduling.kai.io/admitted": text}
        meta = {"name": "p", "namespace": "n", "annotations": annotations}
        [hidden] = redact([{"apiVersion": "v1", "kind": "Pod", "metadata": meta}])
        assert "acme" not in hidden["metadata"]["annotations"]["scheduling.kai.io/admitted"]
