"""Selectors drawn from a grammar, well typed, ill typed and ill formed: the same for a seed.

Without empty literals: texts name the types of their elements as far as inference has come.
"""

import random
import re
from collections.abc import Callable

TOKEN = re.compile(r'"[^"]*"|[A-Za-z_][A-Za-z_0-9]*|\d+(?:\.\d+)?|&&|\|\||[=!<>]=|\S')
DOMAIN = 'device.attributes["a.example.com"]'
CAPACITY = 'device.capacity["a.example.com"]'
ODD_TOKENS = (*"()[]{}.,?:=@", "&&", "in", '"', "'", "0x")
FAULTS = 0.04
"""Of the places where a value of another type stands than is wanted."""

Draw = Callable[["Grammar", int], str]


class Grammar:
    """Expressions by type, from one source of chance."""

    def __init__(self, seed: int) -> None:
        """Start at ``seed``."""
        self.chance = random.Random(seed)

    def selector(self) -> str:
        """The next expression; every eighth with a token changed."""
        text = self.of("bool", 3)
        return self._mutated(text) if self.chance.random() < 1 / 8 else text

    def of(self, kind: str, depth: int) -> str:
        """An expression, mostly of type ``kind``, that nests so deep at most."""
        if self.chance.random() < FAULTS:
            kind = self.chance.choice(sorted(LEAVES))
        if depth <= 0 or self.chance.random() < 0.2:
            return self.chance.choice(LEAVES[kind])
        return self.chance.choice(NODES[kind])(self, depth - 1)

    def _mutated(self, text: str) -> str:
        tokens = TOKEN.findall(text)
        at = self.chance.randrange(len(tokens))
        match self.chance.randrange(4):
            case 0:
                del tokens[at]
            case 1:
                tokens.insert(at, self.chance.choice(ODD_TOKENS))
            case 2:
                tokens[at] = self.chance.choice(ODD_TOKENS)
            case _:
                tokens.insert(at, tokens[at])
        return " ".join(tokens)


LEAVES: dict[str, list[str]] = {
    "bool": ["true", "false", f"{DOMAIN}.healthy", "device.allowMultipleAllocations"],
    "int": ["0", "1", "-7", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
            "0x7F", f"{DOMAIN}.index", "size([1, 2])"],
    "string": ['"H100"', '""', "device.driver", f"{DOMAIN}.model", 'r"\\d+"', r"'\u00e9\x41\n'",
               r'"\101\"\U0001F600"', r"'\q'", "'''a\'b'''", r'"\ud800"'],
    "double": ["1.5", "0.0", "double(2)", "1e400", ".5", "2.E3", "1e-3"],
    "optional": ["optional.none()", "optional.of(1)", f"{DOMAIN}.?index", "[1, 2][?5]",
                 'optional.ofNonZeroValue("")', 'device.attributes[?"x"].?y'],
    "address": ['ip("10.0.0.1")', 'ip("::1")', 'ip("x")', 'cidr("10.0.0.0/8").ip()'],
    "list": ["[1, 2]", '["x"]', "[1, 2].map(i, i + 1)", f"[{DOMAIN}.index]"],
    "map": ['{"k": 1}', DOMAIN, "device.attributes", CAPACITY],
    "quantity": ['quantity("1Gi")', f"{CAPACITY}.memory", 'quantity("x")'],
    "version": ['semver("1.2.3")', f"{DOMAIN}.driverVersion", 'semver("1")'],
    "other": ["null", "b'x'", "1u", "type(1)", 'duration("1s")',
              'timestamp("2024-01-01T00:00:00Z")',
              "device", "unknown", "device.unknown", "dyn(1)"],
}  # fmt: skip


def _binary(operators: str, *kinds: str) -> list[Draw]:
    return [
        lambda g, n, o=operator, k=kind: f"({g.of(k, n)} {o} {g.of(k, n)})"
        for operator in operators.split()
        for kind in kinds
    ]


def _text(template: str, *kinds: str) -> Draw:
    return lambda g, n: template.format(*(g.of(kind, n) for kind in kinds))


NODES: dict[str, list[Draw]] = {
    "bool": [
        *_binary("&& ||", "bool"),
        *_binary("== != <", "int", "string", "double", "version"),
        *_binary("==", "list", "map", "quantity", "bool"),
        _text("!({})", "bool"),
        _text("({} ? {} : {})", "bool", "bool", "bool"),
        _text("({} in {})", "int", "list"),
        _text("({} in {})", "string", "map"),
        _text("has({}.model)", "map"),
        _text("({}).exists(i, i == {})", "list", "int"),
        _text("({}).all(k, {})", "map", "bool"),
        _text("({}).exists(k, v, v == {})", "map", "int"),
        _text("({}).startsWith({})", "string", "string"),
        _text("({}).matches({})", "string", "string"),
        _text("({}).contains({})", "string", "string"),
        _text("({}).isGreaterThan({})", "quantity", "quantity"),
        _text("({}).isLessThan({})", "version", "version"),
        _text("({}).compareTo({}) > 0", "quantity", "quantity"),
        _text("isQuantity({})", "string"),
        _text("isSemver({})", "string"),
        _text("cel.bind(x, {}, x == {})", "int", "int"),
        _text("sets.contains({}, {})", "list", "list"),
        _text("({}.?model.orValue({}) == {})", "map", "string", "string"),
        _text("(type({}) == type({}))", "int", "other"),
        _text("({}).hasValue()", "optional"),
        _text("({}).optMap(o, o == {}).orValue({})", "optional", "int", "bool"),
        _text("({}).or({}).hasValue()", "optional", "optional"),
        _text("({}).optFlatMap(o, {}).hasValue()", "optional", "optional"),
        _text("({}).exists(a, ({}).all(b, a == b))", "list", "list"),
        _text("({}).existsOne(a, b, a == b && {})", "list", "bool"),
        _text("cel.bind(x, {}, cel.bind(y, x + {}, y == x))", "int", "int"),
        _text("({}).isInteger()", "quantity"),
        _text("isIP({})", "string"),
        _text("ip.isCanonical({})", "string"),
        _text('cidr("10.0.0.0/8").containsIP({})', "address"),
        _text("({}).isLoopback()", "address"),
        _text("({} == {})", "address", "address"),
        _text("isURL({})", "string"),
        _text("({}).isSorted()", "list"),
        _text("sets.intersects({}, {})", "list", "list"),
        _text("math.isNaN({})", "double"),
        _text("bool({})", "string"),
    ],
    "int": [
        *_binary("+ - * / %", "int"),
        _text("-({})", "int"),
        _text("size({})", "list"),
        _text("({}).size()", "string"),
        _text("int({})", "double"),
        _text("({})[{}]", "list", "int"),
        _text("({}).sum()", "list"),
        _text("({}).indexOf({})", "string", "string"),
        _text("({} ? {} : {})", "bool", "int", "int"),
        _text("math.greatest({}, {})", "int", "int"),
        _text("({}).orValue({})", "optional", "int"),
        _text("({}).value()", "optional"),
        _text("({}).asInteger()", "quantity"),
        _text("({}).sign()", "quantity"),
        _text("({}).major()", "version"),
        _text("({}).family()", "address"),
        _text("({}).lastIndexOf({})", "list", "int"),
        _text("({}).max()", "list"),
        _text("math.abs({})", "int"),
        _text("math.bitAnd({}, {})", "int", "int"),
    ],
    "string": [
        *_binary("+", "string"),
        _text("string({})", "int"),
        _text("({}).lowerAscii()", "string"),
        _text("({}).substring({})", "string", "int"),
        _text("({}).replace({}, {})", "string", "string", "string"),
        _text("({})[{}]", "map", "string"),
        _text("({}).join({})", "list", "string"),
        _text("({}).format([{}])", "string", "int"),
        _text("({}).find({})", "string", "string"),
        _text("({}).charAt({})", "string", "int"),
        _text("({}).trim().upperAscii()", "string"),
        _text("strings.quote({})", "string"),
        _text("string({})", "address"),
    ],
    "double": [*_binary("+ / *", "double"), _text("double({})", "int")],
    "list": [
        *_binary("+", "list"),
        _text("[{}, {}]", "int", "int"),
        _text("[{}, {}]", "int", "string"),
        _text("({}).map(i, i + {})", "list", "int"),
        _text("({}).filter(i, {})", "list", "bool"),
        _text("({}).split({})", "string", "string"),
        _text("({}).sort()", "list"),
        _text("[?{}, {}]", "optional", "int"),
        _text("({}).transformList(i, v, i + v)", "list"),
        _text("({}).transformList(i, v, v == {}, i)", "list", "int"),
        _text("({}).map(a, ({}).map(b, a + b))", "list", "list"),
        _text("({}).map(a, a == {}, a)", "list", "int"),
        _text("[{}].flatten()", "list"),
        _text("({}).slice(0, {})", "list", "int"),
        _text("({}).distinct()", "list"),
        _text("lists.range(3).map(i, i + {})", "int"),
        _text("({}).sortBy(e, -e)", "list"),
        _text("({}).findAll({})", "string", "string"),
    ],
    "map": [
        _text('{{"k": {}, "l": {}}}', "int", "int"),
        _text("{{{}: {}}}", "string", "string"),
        _text("({}).transformMap(k, v, v)", "map"),
        _text("({}).transformMapEntry(k, v, {{k: {}}})", "map", "int"),
    ],
    "quantity": [
        _text("({}).add({})", "quantity", "quantity"),
        _text("quantity({})", "string"),
        _text("({}).sub({})", "quantity", "int"),
    ],
    "version": [_text("semver({})", "string"), _text("semver({}, {})", "string", "bool")],
    # A comprehension over a map with optional entries makes the API server of 1.36 panic.
    "optional": [
        _text('{{?"k": {}}}.?k', "optional"),
        _text("optional.of({})", "int"),
        _text("({}).optMap(o, o)", "optional"),
        _text("{}[?{}]", "list", "int"),
        _text("{}.?k", "map"),
    ],
    "address": [_text("ip({})", "string"), _text("cidr({}).ip()", "string")],
    "other": [_text("dyn({})", "int"), _text("type({})", "string")],
}


def selectors(seed: int, count: int) -> list[str]:
    """``count`` different expressions."""
    grammar, found = Grammar(seed), dict[str, None]()
    while len(found) < count:
        found[grammar.selector()[:2048]] = None
    return list(found)
