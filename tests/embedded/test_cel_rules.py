"""Rules of CRDs (x-kubernetes-validations): what they allow, what is refused."""

import pytest

from kai_py.embedded.documents import clone
from kai_py.embedded.errors import RequestError
from tests.embedded.manifests import queue, queue_definition
from tests.embedded.published_rules import (
    BROKEN,
    BROKEN_SCHEMA,
    FAILING,
    HOLDING,
    RULES,
    TEXT,
    TRANSITIONS,
    WHOLE,
    broken,
    failing,
    fields,
)


def define(bare, spec, *rules):
    """Create a CRD whose spec has a schema and these rules, texts or as written in full."""
    definition = queue_definition()
    written = [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]
    root = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["properties"]["spec"] = {**spec, RULES: written} if written else spec
    bare.create(definition)
    return bare.registry.named("queues.example.com")


def refused(call, *args, **kwargs):
    """What the server says of each field when it refuses."""
    with pytest.raises(RequestError) as caught:
        call(*args, **kwargs)
    assert caught.value.code == 422
    return [(cause["field"], cause["message"]) for cause in caught.value.details["causes"]]


def refused_definition(bare, spec, *rules):
    place = "spec.validation.openAPIV3Schema.properties[spec]"
    found = refused(define, bare, spec, *rules)
    return [(path.removeprefix(f"{place}.{RULES}[0]."), message) for path, message in found]


def named(name, spec):
    return {**queue(name), "spec": spec}


def update(bare, resource, created, spec):
    return bare.api.update(resource, created["metadata"]["name"], {**created, "spec": spec})


@pytest.mark.parametrize(("rule", "spec", "good", "bad"), HOLDING)
def test_published_rules_hold(bare, rule, spec, good, bad):
    define(bare, spec, rule)
    bare.create(named("good", good))
    found = refused(bare.create, named("bad", bad))
    assert found == [("spec", broken(bad, rule))]


def test_a_variable_may_be_bound(bare):
    """As in device selectors; a real API server has no ``cel.bind`` in the rules of CRDs."""
    rule = "cel.bind(parts, self.split('.'), parts.size() == 2 && parts[0] != parts[1])"
    define(bare, TEXT, rule)
    bare.create(named("good", "a.b"))
    assert refused(bare.create, named("bad", "a.a"))


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("namespace", "self.__namespace__ > 0"),
        ("namespace", "self.namespace > 0"),
        ("package", "has(self.package) && self.package > 0"),
        ("x-prop", "self.x__dash__prop > 0"),
        ("redact__d", "self.redact__underscores__d > 0"),
        ("a.b/c", "self.a__dot__b__slash__c > 0"),
        ("sprint", "self.sprint > 0"),
        ("int", "self.int > 0"),
    ],
)
def test_names_that_are_no_identifiers_are_escaped(bare, name, rule):
    define(bare, fields(**{name: WHOLE}), rule)
    bare.create(named("good", {name: 1}))
    refused(bare.create, named("bad", {name: 0}))


def test_a_name_that_cannot_be_escaped_is_not_accessible(bare):
    found = refused_definition(bare, fields(**{"a b": WHOLE}), "self.a__b > 0")
    assert "undefined field 'a__b'" in found[0][1]


def typed_list(kind, items, **more):
    return {"type": "array", "items": items, "x-kubernetes-list-type": kind, **more}


def test_sets_are_equal_in_any_order_and_add_up_to_a_union(bare):
    names = typed_list("set", WHOLE)
    define(
        bare,
        fields(a=names, b=names, atomic={"type": "array", "items": WHOLE}),
        "self.a == self.b",
        "(self.a + self.b).size() == self.a.size()",
        "self.a + [3, 4] == [4, 3, 2, 1]",
        "self.atomic == [1, 2] && self.atomic != [2, 1] && self.atomic + [1] == [1, 2, 1]",
    )
    bare.create(named("good", {"a": [1, 2, 3], "b": [3, 2, 1], "atomic": [1, 2]}))
    refused(bare.create, named("bad", {"a": [1, 2, 3], "b": [3, 2, 4], "atomic": [1, 2]}))


def test_map_lists_are_equal_by_keys_and_merge_by_them(bare):
    port = fields(**{"port": WHOLE, "if": TEXT, "name": TEXT})
    ports = typed_list("map", port, **{"x-kubernetes-list-map-keys": ["port", "if"]})
    define(
        bare,
        {"type": "array", "items": ports},
        "(self[0] + self[1]).map(p, p.name) == ['one', 'new', 'three']",
        "self[0] + self[1] == self[2] && self[1] + self[0] != self[2]",
    )
    one, two, three = (
        {"port": 1, "if": "x", "name": "one"},
        {"port": 2, "if": "x", "name": "two"},
        {"port": 2, "if": "y", "name": "three"},
    )
    new = {**two, "name": "new"}
    bare.create(named("good", [[one, two], [new, three], [three, new, one]]))
    wrong = [[one, two], [new, three], [three, two, one]]
    assert len(refused(bare.create, named("bad", wrong))) == 1


def test_null_fields_are_absent(bare):
    schema = fields(a={**TEXT, "nullable": True}, l={"type": "array", "items": TEXT})
    define(bare, schema, "!has(self.a)")
    bare.create(named("good", {"a": None}))


def test_preserved_unknown_fields_are_compared_but_not_accessible(bare):
    keep = {"x-kubernetes-preserve-unknown-fields": True}
    found = refused_definition(bare, {**fields(a=WHOLE), **keep}, "self.b == 1")
    assert "undefined field 'b'" in found[0][1]
    resource = define(bare, {**fields(a=WHOLE, any=keep), **keep}, "self == oldSelf")
    created = bare.create(named("a", {"a": 1, "b": 2, "any": {"c": 3}}))
    assert update(bare, resource, created, {"a": 1, "b": 2, "any": {"c": 3}})
    assert refused(update, bare, resource, created, {"a": 1, "b": 3, "any": {"c": 3}})
    assert refused(update, bare, resource, created, {"a": 1, "b": 2, "any": {"c": 4}})


def test_the_root_has_its_name_and_no_other_metadata(bare):
    definition = queue_definition()
    root = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root[RULES] = [{"rule": "self.metadata.labels.size() == 0"}]
    assert "undefined field 'labels'" in refused(bare.create, definition)[0][1]
    root[RULES] = [{"rule": "self.metadata.name == 'singleton' && self.kind == 'Queue'"}]
    bare.create(definition)
    bare.create(queue("singleton", deservedGPUs=1))
    assert refused(bare.create, queue("other", deservedGPUs=1))[0][0] == "<nil>"


def test_an_embedded_resource_has_them_too(bare):
    template = {**fields(replicas=WHOLE), "x-kubernetes-embedded-resource": True}
    define(bare, fields(template=template), "self.template.metadata.name.startsWith('a')")
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "y"}}}
    bare.create(named("good", {"template": body}))
    refused(bare.create, named("bad", {"template": {**body, "metadata": {"name": "b"}}}))


@pytest.mark.parametrize(("rule", "spec", "old", "good", "bad"), TRANSITIONS)
def test_transition_rules_compare_with_the_value_before(bare, rule, spec, old, good, bad):
    resource = define(bare, spec, rule)
    update(bare, resource, bare.create(named("a", old)), good)
    assert refused(update, bare, resource, bare.create(named("b", old)), bad)


def test_optional_old_self_is_none_at_create(bare):
    rule = {
        "rule": "self.foo == 'foo' || (oldSelf.hasValue() && oldSelf.value().foo != 'foo')",
        "optionalOldSelf": True,
    }
    resource = define(bare, fields(foo=TEXT), rule)
    assert refused(bare.create, named("a", {"foo": "bar"}))
    created = bare.create(named("a", {"foo": "foo"}))
    assert refused(update, bare, resource, created, {"foo": "bar"})


def test_elements_of_map_lists_are_compared_by_their_keys(bare):
    item = {**fields(name=TEXT, size=WHOLE), RULES: [{"rule": "self.size >= oldSelf.size"}]}
    items = typed_list("map", item, **{"x-kubernetes-list-map-keys": ["name"]})
    resource = define(bare, fields(items=items))
    before = [{"name": "x", "size": 1}, {"name": "y", "size": 5}]
    moved = [{"name": "y", "size": 6}, {"name": "new", "size": 0}, {"name": "x", "size": 0}]
    created = bare.create(named("a", {"items": before}))
    found = refused(update, bare, resource, created, {"items": moved})
    assert [path for path, _ in found] == ["spec.items[2]"]


@pytest.mark.parametrize("kind", ["atomic", "set"])
def test_a_transition_rule_that_can_never_apply_is_refused(bare, kind):
    inner = {**TEXT, RULES: [{"rule": "self == oldSelf"}]}
    found = refused(define, bare, fields(names=typed_list(kind, inner)))
    place = "spec.validation.openAPIV3Schema.properties[spec].properties[names]"
    assert found[0][0] == f"{place}.items.{RULES}[0].rule"
    assert found[0][1].endswith(
        f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place}"
    )


def redefine(bare, spec):
    """Give the spec of the CRD another schema."""
    definitions = bare.registry.named("customresourcedefinitions.apiextensions.k8s.io")
    definition = clone(bare.api.get(definitions, "queues.example.com"))
    root = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["properties"]["spec"] = spec
    bare.api.update(definitions, "queues.example.com", definition)
    return bare.registry.named("queues.example.com")


@pytest.mark.parametrize(
    "wrong",
    [
        {RULES: [{"rule": "self.a > 1"}]},
        {"allOf": [{RULES: [{"rule": "self.a > 1"}]}]},
        {"allOf": [{"properties": {"a": {RULES: [{"rule": "self > 1"}]}}}]},
    ],
)
def test_preserved_fields_and_all_of_are_never_unchanged(bare, wrong):
    """As in Kubernetes 1.36, which compares what it finds in the schema."""
    keep = {"x-kubernetes-preserve-unknown-fields": RULES in wrong}
    spec = {"a": 1, "b": 2} if RULES in wrong else {"a": 1}
    define(bare, {**fields(a=WHOLE), **keep})
    created = bare.create(named("a", spec))
    resource = redefine(bare, {**fields(a=WHOLE), **keep, **wrong})
    assert refused(update, bare, resource, created, spec)


def test_what_an_update_leaves_as_it_was_may_stay_wrong(bare):
    define(bare, fields(a=WHOLE, b=WHOLE))
    created = bare.create(named("a", {"a": 1, "b": -1}))
    resource = redefine(bare, fields(a=WHOLE, b={**WHOLE, RULES: [{"rule": "self > 0"}]}))
    assert refused(bare.create, named("b", {"a": 1, "b": -1}))
    changed = update(bare, resource, created, {"a": 2, "b": -1})
    assert refused(update, bare, resource, changed, {"a": 2, "b": -2})


@pytest.mark.parametrize(("rule", "spec", "content", "message"), FAILING)
def test_a_rule_that_fails_when_it_runs_is_a_field_error(bare, rule, spec, content, message):
    define(bare, spec, rule)
    found = refused(bare.create, named("a", content))
    assert found == [("spec", failing(spec, message))]


@pytest.mark.parametrize(("rule", "path", "message"), BROKEN)
def test_a_broken_rule_refuses_the_definition(bare, rule, path, message):
    found = refused_definition(bare, BROKEN_SCHEMA, rule)
    assert [where for where, _ in found] == [path]
    assert message in found[0][1]


def test_rules_are_forbidden_where_a_schema_only_judges(bare):
    schema = {**fields(a=WHOLE), "anyOf": [{"properties": {"a": {RULES: [{"rule": "self > 0"}]}}}]}
    found = refused(define, bare, schema)
    assert found[0][1] == "Forbidden: must be empty to be structural"


def test_a_rule_needs_a_schema_with_a_type(bare):
    keep = {"x-kubernetes-preserve-unknown-fields": True, RULES: [{"rule": "true"}]}
    assert "rules need a schema with a type" in refused(define, bare, fields(a=keep))[0][1]


def test_rules_of_all_of_are_evaluated(bare):
    limit = {"properties": {"a": {RULES: [{"rule": "self < 10"}]}}}
    define(bare, {**fields(a=WHOLE), "allOf": [limit]})
    assert refused(bare.create, named("a", {"a": 10}))[0][0] == "spec.a"


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"messageExpression": '"x exceeded max limit of " + string(self.maxLimit)'},
         ("spec", 'Invalid value: x exceeded max limit of 1')),
        ({"messageExpression": "string(1 / (self.x - 2))", "message": "too large"},
         ("spec", 'Invalid value: too large')),
        ({"messageExpression": "' '", "message": "too large"},
         ("spec", 'Invalid value: too large')),
        ({"reason": "FieldValueForbidden", "fieldPath": ".foo.x"},
         ("spec.foo.x", "Forbidden: failed rule: self.x <= self.maxLimit")),
        ({"reason": "FieldValueRequired", "fieldPath": ".map['a']"},
         ("spec.map[a]", "Required value: failed rule: self.x <= self.maxLimit")),
        ({"reason": "FieldValueDuplicate"}, ("spec", "Duplicate value")),
    ],
)  # fmt: skip
def test_a_rule_says_what_is_wrong_and_where(bare, more, cause):
    schema = fields(
        x=WHOLE,
        maxLimit=WHOLE,
        foo=fields(x=WHOLE),
        map={"type": "object", "additionalProperties": TEXT},
    )
    define(bare, schema, {"rule": "self.x <= self.maxLimit", **more})
    assert refused(bare.create, named("a", {"x": 2, "maxLimit": 1})) == [cause]


def test_rules_stand_at_any_depth(bare):
    positive = {**WHOLE, RULES: [{"rule": "self > 0"}]}
    schema = fields(
        map={"type": "object", "additionalProperties": positive},
        list={"type": "array", "items": fields(a=positive)},
    )
    define(bare, schema)
    content = {"map": {"good": 1, "bad": 0}, "list": [{"a": 1}, {"a": 0}, {}]}
    found = refused(bare.create, named("a", content))
    assert sorted(path for path, _ in found) == ["spec.list[1].a", "spec.map[bad]"]


def test_too_expensive_rules_end_the_evaluation(bare):
    loop = "self.all(a, self.all(b, self.all(c, a + b + c > 0)))"
    define(bare, {"type": "array", "items": WHOLE}, loop, "false")
    found = refused(bare.create, named("a", [1] * 100))
    assert len(found) == 1
    assert "actual cost limit exceeded" in found[0][1]


@pytest.mark.slow
def test_all_rules_of_an_object_share_a_budget(bare):
    item = {
        "type": "array",
        "items": TEXT,
        RULES: [{"rule": "self.all(a, self.all(b, a + b != ''))"}],
    }
    define(bare, {"type": "array", "items": item})
    found = refused(bare.create, named("a", [["x"] * 200] * 100))
    assert len(found) == 1
    assert "running out of cost budget" in found[0][1]


def test_kueues_rule_for_borrowing(bare):
    flavor = fields(resources={"type": "array", "items": fields(name=TEXT, borrowingLimit=WHOLE)})
    group = fields(flavors={"type": "array", "items": flavor})
    rule = (
        "!has(self.cohort) && has(self.resourceGroups) ? self.resourceGroups.all(rg, "
        "rg.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit)))) : true"
    )
    message = "borrowingLimit must be nil when cohort is empty"
    define(
        bare,
        fields(cohort=TEXT, resourceGroups={"type": "array", "items": group}),
        {"rule": rule, "message": message},
    )
    groups = [{"flavors": [{"resources": [{"name": "cpu", "borrowingLimit": 1}]}]}]
    bare.create(named("good", {"cohort": "a", "resourceGroups": groups}))
    assert refused(bare.create, named("bad", {"resourceGroups": groups}))[0][1].endswith(message)
