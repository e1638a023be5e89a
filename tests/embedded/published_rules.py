"""Rules of CRDs as published, what keeps and what breaks them, and what the API server then says.

Sources: Kubernetes documentation ("Common Expression Language in Kubernetes", "Validation rules" of
CustomResourceDefinitions), Gateway API, OpenShift API, COSI, NATS operator. Lengths are bounded, as
the API server wants them to be where rules go through them.
"""

import json
from typing import Any

Json = dict[str, Any]

RULES = "x-kubernetes-validations"
TEXT = {"type": "string", "maxLength": 64}
WHOLE = {"type": "integer"}


def fields(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def a_list(items: Json) -> Json:
    return {"type": "array", "items": items, "maxItems": 16}


def a_map(values: Json) -> Json:
    return {"type": "object", "additionalProperties": values, "maxProperties": 16}


TEXTS = a_list(TEXT)
LISTENER = fields(name=TEXT, port=WHOLE, protocol=TEXT, hostname=TEXT)

HOLDING: list[tuple[str, Json, Any, Any]] = [
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
    ("quantity(self).isGreaterThan(quantity('100Mi'))", TEXT, "150Mi", "50Mi"),
    ("self.all(i, name, i == 0 || name != self[i - 1])", TEXTS, ["a", "b"], ["a", "a"]),
    ("self.exists(key, value, key == 'tier' && value == 'gpu')",
     a_map(TEXT), {"tier": "gpu"}, {"tier": "cpu"}),
    ("self.?cohort.orValue('none') != 'none'", fields(cohort=TEXT), {"cohort": "a"}, {}),
    ("!has(self.cohort) || self.cohort != ''", fields(cohort=TEXT), {}, {"cohort": ""}),
    ("self.minReplicas <= self.replicas && self.replicas <= self.maxReplicas",
     fields(minReplicas=WHOLE, replicas=WHOLE, maxReplicas=WHOLE),
     {"minReplicas": 1, "replicas": 2, "maxReplicas": 3},
     {"minReplicas": 1, "replicas": 4, "maxReplicas": 3}),
    ("'Available' in self", a_map(WHOLE),
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
     a_list(fields(weight={"type": "number"})),
     [{"weight": 1}, {"weight": 0}], [{"weight": 0.5}]),
    ("size(self) == 3 && self == b'abc'", {"type": "string", "format": "byte"}, "YWJj", "YWJk"),
    ("self.all(l1, self.exists_one(l2, l1.port == l2.port && l1.protocol == l2.protocol && "
     "(has(l1.hostname) && has(l2.hostname) ? l1.hostname == l2.hostname : "
     "!has(l1.hostname) && !has(l2.hostname))))",
     a_list(LISTENER),
     [{"port": 80, "protocol": "HTTP"}, {"port": 80, "protocol": "HTTP", "hostname": "a"}],
     [{"port": 80, "protocol": "HTTP"}, {"port": 80, "protocol": "HTTP"}]),
    ("self.all(ip, ip.startsWith('10.'))", TEXTS, ["10.0.0.1"], ["11.0.0.1"]),
]  # fmt: skip
"""A rule, the schema it stands at, a value that keeps it and one that breaks it."""

TRANSITIONS: list[tuple[str, Json, Any, Any, Any]] = [
    ("self.foo == oldSelf.foo", fields(foo=TEXT, bar=TEXT), {"foo": "a"},
     {"foo": "a", "bar": "b"}, {"foo": "b"}),
    ("oldSelf != 'bar' || self == 'bar'", TEXT, "bar", "bar", "foo"),
    ("!has(oldSelf.field) || has(self.field)", fields(field=TEXT), {"field": "x"},
     {"field": "y"}, {}),
    ("oldSelf.all(element, element in self)", TEXTS, ["a"], ["a", "b"], ["b"]),
    ("oldSelf != 'X' || self in ['A', 'B']", TEXT, "X", "A", "Y"),
    ("self >= oldSelf", WHOLE, 3, 4, 2),
]  # fmt: skip
"""A rule, the schema it stands at, a value, one it may become and one it may not become."""

FAILING: list[tuple[str, Json, Any, str]] = [
    ("self['xyz'] > 0", a_map(WHOLE), {"a": 1},
     "no such key: xyz evaluating rule: self['xyz'] > 0"),
    ("self[5] == 'x'", TEXTS, ["a"],
     "index out of bounds: 5 evaluating rule: self[5] == 'x'"),
    ("1 / self == 1", WHOLE, 0, "division by zero evaluating rule: 1 / self == 1"),
    ("self + 1 > 0", WHOLE, 2**63 - 1, "integer overflow evaluating rule: self + 1 > 0"),
    ("self + 1 > 0", {"x-kubernetes-int-or-string": True}, "a",
     "'no such overload': call arguments did not match a supported operator, function or macro "
     "signature for rule: self + 1 > 0"),
    ("sign(quantity(self)) == 1", TEXT, "much",
     "quantities must match the regular expression "
     "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$' evaluating rule: "
     "sign(quantity(self)) == 1"),
    ("self.matches(self)", TEXT, "(",
     "error parsing regexp: missing closing ): `(` evaluating rule: self.matches(self)"),
]  # fmt: skip
"""A rule, the schema it stands at, a value on which it fails, and what is said then."""

BROKEN_SCHEMA = fields(a=WHOLE, l=TEXTS)
BROKEN: list[tuple[str | Json, str, str]] = [
    ("self.nonExistingField > 0", "rule", "<input>:1:5: undefined field 'nonExistingField'"),
    ("has(self)", "rule", "<input>:1:5: invalid argument to has() macro"),
    ("self.a == ", "rule", "Syntax error"),
    ("self.a == 1.0", "rule",
     "found no matching overload for '_==_' applied to '(int, double)'"),
    ("jsonpatch.escapeKey('a') == 'a'", "rule", "undeclared reference to 'jsonpatch'"),
    ("authorizer.path('/healthz').check('get').allowed()", "rule",
     "undeclared reference to 'authorizer'"),
    ("self.l.all(i, i, i < 3)", "rule", "duplicate variable name: i"),
    ("'a'.matches('(')", "rule", "<input>:1:13: invalid matches argument"),
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
]  # fmt: skip
"""A rule that refuses a CRD with ``BROKEN_SCHEMA``, the field of the fault, what is said of it."""


def broken(value: Any, rule: str) -> str:
    """What is said of a value that breaks a rule: objects and lists are not shown."""
    shown = "" if isinstance(value, dict | list) else f"{json.dumps(value)}: "
    return f"Invalid value: {shown}failed rule: {rule}"


def failing(schema: Json, message: str) -> str:
    """What is said where a rule fails when it runs: the type is shown."""
    return f'Invalid value: "{schema.get("type", "")}": {message}'
