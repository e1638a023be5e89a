"""Rule files: what is read, what is refused, and whose rules count."""

import pytest

from kai_py.api.records.core import ObjectMeta
from kai_py.config import ConfigurationError, parse_configuration
from kai_py.grouping.owner_chain import GroupKind
from kai_py.grouping.queue_choice import Defaults
from kai_py.grouping.rule import Treatment
from kai_py.grouping.rule_table import RuleError, RuleTable, read_rules, shipped_rules

OWN = """
rules:
  - owners: [{group: example.com, kinds: [Simulation]}]
    leafLabel: role
    leaves:
      - {name: main}
      - {name: helper, floor: {first: [spec.least], sum: [{each: spec.groups.*, field: size}]}}
  - owners: [{group: ray.io, kinds: [RayCluster]}]
    treatment: pods
"""


def test_every_shipped_file_is_valid_and_no_kind_is_named_twice():
    rules = shipped_rules().rules
    named = [
        (each.group, kind, rule.defaults, rule.only_annotated)
        for rule in rules
        for each in rule.owners
        for kind in each.kinds
    ]
    assert len(named) == len(set(named)) > 50
    RuleTable(shipped_rules())


def test_own_rules_go_before_the_shipped_ones():
    table = RuleTable(read_rules(OWN, "own.yaml"), shipped_rules())
    ray = GroupKind("ray.io", "RayCluster")
    meta = ObjectMeta(name="a")
    assert table.rule(ray, meta, Defaults.NATIVE).treatment is Treatment.PODS
    assert table.rule(GroupKind("ray.io", "RayJob"), meta, Defaults.NATIVE).framework == "RayJob"
    assert table.rule(GroupKind("example.com", "Other"), meta, Defaults.NATIVE) is None


def test_a_rule_for_annotated_owners_leaves_the_others_to_the_next():
    table, kind = RuleTable(shipped_rules()), GroupKind("apps", "StatefulSet")
    annotated = ObjectMeta(name="a", annotations={"kai.scheduler/min-member": "2"})
    for defaults, treatment in ((Defaults.NATIVE, Treatment.PODS), (Defaults.KAI, Treatment.GANG)):
        assert table.rule(kind, annotated, defaults).framework == "StatefulSet"
        assert table.rule(kind, ObjectMeta(name="a"), defaults).treatment is treatment
        assert table.rule(kind, ObjectMeta(name="a"), defaults).framework == ""


def test_own_rules_go_before_shipped_ones_of_a_dialect():
    own = "rules:\n  - owners: [{group: apps, kinds: [StatefulSet]}]\n    treatment: pods\n"
    table = RuleTable(read_rules(own, "own.yaml"), shipped_rules())
    rule = table.rule(GroupKind("apps", "StatefulSet"), ObjectMeta(name="a"), Defaults.KAI)
    assert rule.treatment is Treatment.PODS


def test_a_table_knows_which_fields_its_rules_read():
    table = RuleTable(read_rules(OWN, "own.yaml"))
    paths = table.paths(GroupKind("example.com", "Simulation"))
    assert paths == ("spec.least", "spec.groups.*.size")
    assert RuleTable(shipped_rules()).paths(GroupKind("kubeflow.org", "Notebook")) == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "rules:\n  - owners: [{group: a.b, kinds: [C]}]\n    flor: {}\n",
            "own.yaml:3: rules[0].flor: no such field; did you mean floor?",
        ),
        (
            "rules:\n  - owners: [{kinds: []}]\n",
            "own.yaml:2: rules[0].owners[0].kinds: must have at least 1 item, not 0",
        ),
        (
            "rules:\n  - owners: [{kinds: [C]}]\n    leaves: [{name: a}]\n",
            "leaves need leafLabel, the pod label that distinguishes them",
        ),
        ("rules: [", "own.yaml:1: "),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_with_its_line(text, problem):
    with pytest.raises(RuleError) as refused:
        read_rules(text, "own.yaml")
    assert problem in str(refused.value)


def test_the_configuration_refuses_unknown_keys_and_unknown_code():
    good = "grouping:\n  rules:\n    - owners: [{group: a.b, kinds: [C]}]\n      treatment: skip\n"
    assert parse_configuration(good).grouping.rules[0].treatment is Treatment.SKIP
    with pytest.raises(
        ConfigurationError, match=r":4: grouping.rules\[0\].treatmnt: no such field"
    ):
        parse_configuration(good.replace("treatment", "treatmnt"))
    with pytest.raises(ConfigurationError, match='no such framework "Rae"; known are Job'):
        parse_configuration(good.replace("treatment: skip", "framework: Rae"))
