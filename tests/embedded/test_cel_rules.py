"""Rules of CRDs (x-kubernetes-validations), as published: what they allow, what is refused.

Sources: Kubernetes documentation ("Common Expression Language in Kubernetes", "Validation rules" of
CustomResourceDefinitions), Kueue, Gateway API, OpenShift API, COSI, NATS operator.
"""

import pytest

from kai_py.embedded.documents import clone
from kai_py.embedded.errors import ApiError
from tests.embedded.manifests import queue, queue_definition

TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
TEXTS = {"type": "array", "items": TEXT}
RULES = "x-kubernetes-validations"
LISTENER = {
    "type": "object",
    "properties": {"name": TEXT, "port": WHOLE, "protocol": TEXT, "hostname": TEXT},
}


def define(bare, spec, *rules):
    """Create a CRD whose spec has a schema and these rules, texts or as written in full."""
    definition = queue_definition()
    written = [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]
    root = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["properties"]["spec"] = {**spec, RULES: written} if written else spec
    bare.create(definition)
    return bare.registry.named("queues.example.com")


def fields(**properties):
    return {"type": "object", "properties": properties}


def refused(call, *args, **kwargs):
    """What the server says of each field when it refuses."""
    with pytest.raises(ApiError) as caught:
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


@pytest.mark.parametrize(
    ("rule", "spec", "good", "bad"),
    [
        ("isIP(self) && ip.isCanonical(self) && ip(self).isGlobalUnicast()", TEXT,
         "2001:db8::1", "127.0.0.1"),
        ("isIP(self)", TEXT, "192.168.0.1", "192.168.0.1.0"),
        ("ip(self).family() == 4", TEXT, "192.168.0.1", "::1"),
        ("isCIDR(self) && cidr(self).containsIP('10.0.0.1')", TEXT, "10.0.0.0/8", "11.0.0.0/8"),
        ("cidr('192.168.0.0/16').containsIP(ip(self))", TEXT, "192.168.1.1", "192.169.0.1"),
        ("self.find('@') == ''", TEXT, "https://vault", "https://me@vault"),
        ("self.findAll('[0-9]+').map(x, int(x)).sum() < 100", TEXT, "1, 2, 3, 4", "99 1"),
        ("self.split('/').size() == 2", TEXT, "example.com/name", "name"),
        ("self.indexOf('should-be-first') == 0", TEXTS, ["should-be-first", "b"], ["b"]),
        ("self.indexOf('-') == -1", TEXT, "name", "na-me"),
        ("self.isSorted()", TEXTS, ["a", "b"], ["b", "a"]),
        ("isURL(self) && url(self).getScheme() == 'https'", TEXT, "https://v:8200", "http://v"),
        ("isURL(self) && url(self).getQuery() == {}", TEXT, "https://v/", "https://v/?a=b"),
        ("!format.dns1123Subdomain().validate(self).hasValue()", TEXT, "a.example", "A_b"),
        ("'%s-%d'.format([self, 1]) == 'queue-1'", TEXT, "queue", "other"),
        ("self.lowerAscii() == self", TEXT, "lower", "Upper"),
        ("isSemver(self) && semver(self).compareTo(semver('2.15.0')) >= 0", TEXT,
         "2.16.1", "2.14.9"),
        ("sets.contains(['a', 'b'], self) && !sets.intersects(self, ['b'])", TEXTS, ["a"], ["b"]),
        ("cel.bind(parts, self.split('.'), parts.size() == 2 && parts[0] != parts[1])", TEXT,
         "a.b", "a.a"),
        ("quantity(self).isGreaterThan(quantity('100Mi'))", TEXT, "150Mi", "50Mi"),
        ("self.all(i, name, i == 0 || name != self[i - 1])", TEXTS, ["a", "b"], ["a", "a"]),
        ("self.exists(key, value, key == 'tier' && value == 'gpu')",
         {"type": "object", "additionalProperties": TEXT}, {"tier": "gpu"}, {"tier": "cpu"}),
        ("self.?cohort.orValue('none') != 'none'", fields(cohort=TEXT), {"cohort": "a"}, {}),
        ("!has(self.cohort) || self.cohort != ''", fields(cohort=TEXT), {}, {"cohort": ""}),
        ("self.minReplicas <= self.replicas && self.replicas <= self.maxReplicas",
         fields(minReplicas=WHOLE, replicas=WHOLE, maxReplicas=WHOLE),
         {"minReplicas": 1, "replicas": 2, "maxReplicas": 3},
         {"minReplicas": 1, "replicas": 4, "maxReplicas": 3}),
        ("'Available' in self", {"type": "object", "additionalProperties": WHOLE},
         {"Available": 1}, {"Ready": 1}),
        ("self.created + self.ttl < self.expired",
         fields(created={"type": "string", "format": "date-time"},
                ttl={"type": "string", "format": "duration"},
                expired={"type": "string", "format": "date-time"}),
         {"created": "2026-01-01T00:00:00Z", "ttl": "1h", "expired": "2026-01-01T02:00:00Z"},
         {"created": "2026-01-01T00:00:00Z", "ttl": "3h", "expired": "2026-01-01T02:00:00Z"}),
        ("type(self) == string ? self == '99%' : self == 42",
         {"x-kubernetes-int-or-string": True}, 42, "98%"),
        ("self.map(x, x.weight).sum() == 1.0",
         {"type": "array", "items": fields(weight={"type": "number"})},
         [{"weight": 1}, {"weight": 0}], [{"weight": 0.5}]),
        ("size(self) == 3 && self == b'abc'", {"type": "string", "format": "byte"}, "YWJj", "YWJk"),
        ("self.all(l1, self.exists_one(l2, l1.port == l2.port && l1.protocol == l2.protocol && "
         "(has(l1.hostname) && has(l2.hostname) ? l1.hostname == l2.hostname : "
         "!has(l1.hostname) && !has(l2.hostname))))",
         {"type": "array", "items": LISTENER},
         [{"port": 80, "protocol": "HTTP"}, {"port": 80, "protocol": "HTTP", "hostname": "a"}],
         [{"port": 80, "protocol": "HTTP"}, {"port": 80, "protocol": "HTTP"}]),
        ("self.all(ip, ip.startsWith('10.'))", TEXTS, ["10.0.0.1"], ["11.0.0.1"]),
    ],
)  # fmt: skip
def test_published_rules_hold(bare, rule, spec, good, bad):
    define(bare, spec, rule)
    bare.create(named("good", good))
    kind = spec.get("type", "")
    assert refused(bare.create, named("bad", bad)) == [
        ("spec", f'Invalid value: "{kind}": failed rule: {rule}')
    ]


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("namespace", "self.__namespace__ > 0"),
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


@pytest.mark.parametrize(
    ("rule", "spec", "old", "good", "bad"),
    [
        ("self.foo == oldSelf.foo", fields(foo=TEXT, bar=TEXT), {"foo": "a"},
         {"foo": "a", "bar": "b"}, {"foo": "b"}),
        ("oldSelf != 'bar' || self == 'bar'", TEXT, "bar", "bar", "foo"),
        ("!has(oldSelf.field) || has(self.field)", fields(field=TEXT), {"field": "x"},
         {"field": "y"}, {}),
        ("oldSelf.all(element, element in self)", TEXTS, ["a"], ["a", "b"], ["b"]),
        ("oldSelf != 'X' || self in ['A', 'B']", TEXT, "X", "A", "Y"),
        ("self >= oldSelf", WHOLE, 3, 4, 2),
    ],
)  # fmt: skip
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


def test_what_an_update_leaves_as_it_was_may_stay_wrong(bare):
    define(bare, fields(a=WHOLE, b=WHOLE))
    created = bare.create(named("a", {"a": 1, "b": -1}))
    definitions = bare.registry.named("customresourcedefinitions.apiextensions.k8s.io")
    definition = clone(bare.api.get(definitions, "queues.example.com"))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    schema["properties"]["b"][RULES] = [{"rule": "self > 0"}]
    bare.api.update(definitions, "queues.example.com", definition)
    resource = bare.registry.named("queues.example.com")
    assert refused(bare.create, named("b", {"a": 1, "b": -1}))
    changed = update(bare, resource, created, {"a": 2, "b": -1})
    assert refused(update, bare, resource, changed, {"a": 2, "b": -2})


@pytest.mark.parametrize(
    ("rule", "spec", "content", "message"),
    [
        ("self['xyz'] > 0", {"type": "object", "additionalProperties": WHOLE}, {"a": 1},
         "no such key: xyz evaluating rule: self['xyz'] > 0"),
        ("self[5] == 'x'", TEXTS, ["a"],
         "index out of bounds: 5 evaluating rule: self[5] == 'x'"),
        ("1 / self == 1", WHOLE, 0, "division by zero evaluating rule: 1 / self == 1"),
        ("self + 1 > 0", WHOLE, 2**63 - 1, "integer overflow evaluating rule: self + 1 > 0"),
        ("self + 1 > 0", {"x-kubernetes-int-or-string": True}, "a",
         "'no such overload': call arguments did not match a supported operator, function or macro "
         "signature for rule: self + 1 > 0"),
        ("quantity(self).sign() == 1", TEXT, "much",
         "quantities must match the regular expression "
         "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$' evaluating rule: "
         "quantity(self).sign() == 1"),
        ("self.matches(self)", TEXT, "(",
         "error parsing regexp: missing ): ( evaluating rule: self.matches(self)"),
    ],
)  # fmt: skip
def test_a_rule_that_fails_when_it_runs_is_a_field_error(bare, rule, spec, content, message):
    define(bare, spec, rule)
    kind = spec.get("type", "")
    found = refused(bare.create, named("a", content))
    assert found == [("spec", f'Invalid value: "{kind}": {message}')]


@pytest.mark.parametrize(
    ("rule", "path", "message"),
    [
        ("self.nonExistingField > 0", "rule", "<input>:1:5: undefined field 'nonExistingField'"),
        ("has(self)", "rule", "<input>:1:4: invalid argument to has() macro"),
        ("self.a == ", "rule", "Syntax error"),
        ("self.a == 1.0", "rule",
         "found no matching overload for '_==_' applied to '(int, double)'"),
        ("jsonpatch.escapeKey('a') == 'a'", "rule", "undeclared reference to 'jsonpatch'"),
        ("authorizer.path('/healthz').check('get').allowed()", "rule",
         "undeclared reference to 'authorizer'"),
        ("self.l.all(i, i, i < 3)", "rule", "duplicate variable name: i"),
        ("'a'.matches('(')", "rule", "error parsing regexp"),
        ("self.a", "rule", "cel expression must evaluate to a bool"),
        ("", "rule", "Required value: rule is not specified"),
        ({"rule": 5}, "rule", "Required value: rule is not specified"),
        ({"rule": "self.a > 0", "messageExpression": "self.a"}, "messageExpression",
         "messageExpression must evaluate to a string"),
        ({"rule": "self.a > 0", "messageExpression": "self.z"}, "messageExpression",
         "undefined field 'z'"),
        ({"rule": "self.a > 0", "message": "a\nb"}, "message", "must not contain line breaks"),
        ({"rule": "self.a\n> 0"}, "message", "message must be specified"),
        ({"rule": "self.a > 0", "reason": "Odd"}, "reason", "Unsupported value"),
        ({"rule": "self.a > 0", "fieldPath": ".z"}, "fieldPath", "must be a valid path"),
        ({"rule": "self.a > 0", "optionalOldSelf": True}, "optionalOldSelf",
         "may not be set if oldSelf is not used in rule"),
    ],
)  # fmt: skip
def test_a_broken_rule_refuses_the_definition(bare, rule, path, message):
    found = refused_definition(bare, fields(a=WHOLE, l=TEXTS), rule)
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
         ("spec", 'Invalid value: "object": x exceeded max limit of 1')),
        ({"messageExpression": "string(1 / (self.x - 2))", "message": "too large"},
         ("spec", 'Invalid value: "object": too large')),
        ({"messageExpression": "' '", "message": "too large"},
         ("spec", 'Invalid value: "object": too large')),
        ({"reason": "FieldValueForbidden", "fieldPath": ".foo.x"},
         ("spec.foo.x", "Forbidden: failed rule: self.x <= self.maxLimit")),
        ({"reason": "FieldValueRequired", "fieldPath": ".map['a']"},
         ("spec.map[a]", "Required value: failed rule: self.x <= self.maxLimit")),
        ({"reason": "FieldValueDuplicate"}, ("spec", 'Duplicate value: "object"')),
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


def test_all_rules_of_an_object_share_a_budget(bare):
    item = {**TEXTS, RULES: [{"rule": "self.all(a, self.all(b, a + b != ''))"}]}
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
