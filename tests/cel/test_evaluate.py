"""Expressions and what they give, library by library."""

import gc
from contextlib import suppress
from itertools import product

import pytest

from kai_py.api.quantity import parse_quantity
from kai_py.cel.actual_cost import CALL_COSTS, LIMIT, SCALAR_PAIRS
from kai_py.cel.check import Environment
from kai_py.cel.expression import CompileError, compile_expression
from kai_py.cel.functions import REGISTRY, choose
from kai_py.cel.library.convert import to_string
from kai_py.cel.library.versions import parse_semver
from kai_py.cel.types import DYN, QUANTITY, STRING, Type, map_of
from kai_py.cel.values import CELRuntimeError, CostLimitError, Uint
from tests.support.cpu_limit import cpu_limit
from tests.support.patience import processor_seconds

ENVIRONMENT = Environment(
    {"gpu": Type("Gpu"), "name": STRING},
    {"Gpu": {"attributes": map_of(STRING, DYN), "capacity": map_of(STRING, QUANTITY)}},
)
ACTIVATION = {
    "name": "gpu-0",
    "gpu": {
        "attributes": {
            "model": "H100",
            "index": 3,
            "healthy": True,
            "driverVersion": parse_semver("580.65.6"),
            "links": (1, 2, 3),
            "none": (),
        },
        "capacity": {"memory": parse_quantity("80Gi"), "cores": parse_quantity("1500m")},
    },
}
A = "gpu.attributes"
C = "gpu.capacity"


def compiled(text):
    found = compile_expression(text, ENVIRONMENT)
    assert not isinstance(found, CompileError), found
    return found


def evaluate(text):
    return compiled(text).evaluate(ACTIVATION)[0]


@pytest.mark.parametrize(
    "text",
    [
        # errors are absorbed in either order
        f"!({A}.missing in [])",
        f"{A}.missing == 1 || {A}.index == 3",
        f"{A}.index == 3 || {A}.missing == 1",
        f"!({A}.index == 4 && {A}.missing == 1)",
        f"!({A}.missing == 1 && {A}.index == 4)",
        f"[{A}.index, dyn(0)].exists(x, 6 / x == 2)",
        "[0, 2].exists(x, 6 / x == 3)",
        "![0, 4].all(x, 6 / x == 3)",
        # optional syntax
        f'{A}.?model.orValue("") == "H100" && {A}.?missing.orValue("x") == "x"',
        'gpu.?capacity[?"x"].hasValue() == false && gpu.?attributes.none.value() == []',
        f'{A}[?"index"].hasValue() && !{A}[?"missing"].hasValue()',
        f"{A}.?index.optMap(i, i + 1).orValue(0) == 4",
        f"{A}.?missing.optMap(i, i + 1).orValue(7) == 7",
        f"{A}.?missing.or({A}.?index).value() == 3",
        f"{A}.?missing.optFlatMap(i, optional.of(i)).hasValue() == false",
        "[1, ?optional.none(), ?optional.of(2)] == [1, 2]",
        "{'a': 1, ?'b': optional.none()} == {'a': 1}",
        "optional.ofNonZeroValue(0).hasValue() == false",
        "[[1, 2], []].map(l, l[?0].orValue(9)) == [1, 9]",
        "optional.of({'a': {'b': 1}}).a.b.value() == 1",
        "[1, 2].first().value() == 1 && [1, 2].last().value() == 2 && !([].first().hasValue())",
        # numbers
        "1 + 2 * 3 - 4 / 2 % 3 == 5",
        "-7 / 2 == -3 && -7 % 2 == -1 && 7 / -2 == -3",
        "-9223372036854775808 < 9223372036854775807",
        "0x1F == 31 && -0x10 == -16 && 3u + 4u == 7u",
        "1.5e3 == 1500.0 && .5 == 0.5",
        "dyn(1) == 1.0 && dyn(1) == 1u && dyn(1.5) != 1",
        "1 < 1.5 && 2u > 1 && 1.0 <= 1",
        "dyn(true) != 1 && dyn('1') != 1 && dyn(null) != 0",
        "1.0 / 0.0 > 1e308 && !(0.0 / 0.0 == 0.0 / 0.0)",
        "int('42') == 42 && int(3.9) == 3 && int(-3.9) == -3 && int(7u) == 7",
        "uint(3) == 3u && double('1.5') == 1.5 && double(2) == 2.0",
        "string(1) == '1' && string(true) == 'true' && string(1.0) == '1' && string(2.5) == '2.5'",
        "string(1234567.0) == '1.234567e+06' && string(0.0001) == '0.0001'",
        "string(b'abc') == 'abc' && bytes('ä') == b'\\303\\244' && size(b'\\xff') == 1",
        "bool('true') && !bool('0') && type(1) == int && type('') == string && type([]) == list",
        # texts
        "'hello'.contains('ell') && 'hello'.startsWith('he') && 'hello'.endsWith('lo')",
        "'Hello'.lowerAscii() == 'hello' && 'Hello'.upperAscii() == 'HELLO'",
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
        "'abc'.split('') == ['a', 'b', 'c'] && 'a'.split(',', 0) == []",
        "['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab'",
        "'hello'.replace('l', 'L') == 'heLLo' && 'hello'.replace('l', 'L', 1) == 'heLlo'",
        "'hello'.substring(1, 3) == 'el' && 'hello'.substring(3) == 'lo'",
        "'hello'.indexOf('l') == 2 && 'hello'.indexOf('l', 3) == 3 && 'hello'.indexOf('x') == -1",
        "'hello'.lastIndexOf('l') == 3 && 'hello'.lastIndexOf('l', 2) == 2",
        "'abc'.charAt(1) == 'b' && 'abc'.charAt(3) == '' && ' a '.trim() == 'a'",
        "strings.quote('a\"b\\n') == '\"a\\\\\"b\\\\n\"'",
        "'größe'.size() == 5 && size('größe') == 5",
        "r'\\d' == '\\\\d' && '\\u00e4' == 'ä' && '\\x41\\101' == 'AA' && '''a'b''' == \"a'b\"",
        "'H100'.matches('^H[0-9]+$') && !'A100'.matches('^H') && matches('abc', 'b')",
        "'abc 123'.find('[0-9]+') == '123' && '123 abc 456'.findAll('[0-9]+') == ['123', '456']",
        "'1 2 3'.findAll('[0-9]', 2) == ['1', '2'] && 'abc'.find('[0-9]') == ''",
        "'%s is %d of %.2f%%'.format(['a', 3, 1.5]) == 'a is 3 of 1.50%'",
        "'%b %o %x %X %e'.format([5, 8, 255, 'hi', 1234.5]) == '101 10 ff 6869 1.234500×10⁰³'",
        "'%s %s'.format([[1, 'a'], {'k': true}]) == '[1, \"a\"] {\"k\":true}'",
        # lists, maps, sets
        "1 in [1, 2] && !(3 in [1, 2]) && 'a' in {'a': 1} && dyn(1.0) in [1]",
        "[1, 2] + [3] == [1, 2, 3] && [1, 2, 3].size() == 3 && [1, 2][1] == 2",
        "[3, 1, 2].max() == 3 && [3, 1, 2].min() == 1 && [1, 2].sum() == 3 && [1.5].sum() == 1.5",
        "[1, 2, 2].isSorted() && !['b', 'a'].isSorted()",
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(5) == -1",
        "[1, 2].includes(2) && !'a'.includes('b') && dyn(3).includes(3)",
        f"{A}.links.includes(3) && {A}.index.includes(3) && !{A}.links.includes(9)",
        f"{A}.none.size() == 0 && {A}.links == [1, 2, 3]",
        "[1, 2, 3].slice(1, 2) == [2] && [[1], [2]].flatten() == [1, 2]",
        "[dyn(1), dyn([dyn(2), dyn([3])])].flatten(2) == [1, 2, 3]",
        "[2, 1, 2].distinct() == [2, 1] && [1, 2].reverse() == [2, 1] && [2, 1].sort() == [1, 2]",
        "lists.range(3) == [0, 1, 2]",
        "sets.contains([1, 2], [1]) && sets.intersects([1], [1, 2]) && !sets.intersects([1], [2])",
        "sets.equivalent([1, 1, 2], [2, 1])",
        "{'a': 1, 'b': 2} == {'b': 2, 'a': 1} && {'a': 1}.a == 1 && {1: 'x'}[1] == 'x'",
        "cel.bind(m, {dyn(true): 'y', dyn(1): 'one'}, m[true] == 'y' && m[1] == 'one')",
        "{1: 'x'}[dyn(1.0)] == 'x' && {1: 'x'}[dyn(1u)] == 'x'",
        # macros
        "[1, 2].all(x, x > 0) && [1, 2].exists(x, x == 2) && [1, 2].exists_one(x, x == 2)",
        "[1, 2].map(x, x * 2) == [2, 4] && [1, 2].map(x, x > 1, x * 2) == [4]",
        "[1, 2, 3].filter(x, x > 1) == [2, 3] && {'a': 1}.map(k, k) == ['a']",
        "[1, 2].exists_one(x, x == 2) && [1, 2].map(x, [1, 2].map(y, x * y)) == [[1, 2], [2, 4]]",
        "[5, 6].all(i, v, v == i + 5) && {'a': 1}.exists(k, v, k == 'a' && v == 1)",
        "[5, 6].existsOne(i, v, i == 1 && v == 6)",
        "[5, 6].exists_one(i, v, i == 1 && v == 6)",
        "['bb', 'a'].sortBy(s, size(s)) == ['a', 'bb'] && [].sortBy(x, x) == []",
        "[{'n': 2}, {'n': 1}].sortBy(e, e.n)[0].n == 1 && [3, 1].map(x, x).sortBy(x, -x) == [3, 1]",
        "[5, 6].transformList(i, v, i * v) == [0, 6]",
        "[5, 6].transformList(i, v, i > 0, v) == [6]",
        "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
        "['x'].transformMap(i, v, v) == {0: 'x'}",
        "{'a': 'b'}.transformMapEntry(k, v, {v: k}) == {'b': 'a'}",
        # quantity, semver
        f"{C}.memory == quantity('81920Mi') && {C}.memory.compareTo(quantity('40Gi')) == 1",
        f"{C}.cores.isLessThan(quantity('2')) && !{C}.cores.isInteger() && sign({C}.cores) == 1",
        "quantity('1.5Gi') == quantity('1536Mi') && quantity('100m').isLessThan(quantity('1'))",
        "quantity('2k').asInteger() == 2000 && quantity('1500m').asApproximateFloat() == 1.5",
        "quantity('1').add(quantity('500m')) == quantity('1.5')",
        "quantity('3').sub(1) == quantity('2')",
        "isQuantity('1Gi') && !isQuantity('1GiB') && !isQuantity(' 1')",
        f"{A}.driverVersion.isGreaterThan(semver('570.0.0')) && {A}.driverVersion.major() == 580",
        "semver('1.2.3').compareTo(semver('1.2.3-rc.1')) == 1 && semver('1.2.3').minor() == 2",
        "semver('1.0.0-alpha.9').isLessThan(semver('1.0.0-alpha.10'))",
        "semver('1.0.0-9').isLessThan(semver('1.0.0-a')) && semver('1.0.0+a') == semver('1.0.0+b')",
        "semver('v1.2', true) == semver('1.2.0') && semver('01.2.3', true).major() == 1",
        "isSemver('1.2.3') && !isSemver('v1.2.3') && !isSemver('1.2') && isSemver('1', true)",
        # times
        "duration('1h30m') == duration('90m') && duration('1.5s').getMilliseconds() == 1500",
        "string(duration('90s')) == '90s' && duration('-1m').getSeconds() == -60",
        "timestamp('2026-01-02T03:04:05Z').getFullYear() == 2026",
        "timestamp('2026-01-02T03:04:05Z').getHours('+02:00') == 5",
        "timestamp('2026-01-02T03:04:05.5+01:00') == timestamp('2026-01-02T02:04:05.5Z')",
        "string(timestamp('2026-01-02T03:04:05.250Z')) == '2026-01-02T03:04:05.25Z'",
        "timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00Z') == duration('24h')",
        "timestamp(0) + duration('1s') > timestamp(0) && int(timestamp(60)) == 60",
        "timestamp('2026-01-04T00:00:00Z').getDayOfWeek() == 0",
        # network
        "ip('192.168.0.1').family() == 4 && ip('::1').isLoopback() && isIP('::') && !isIP('1.2.3')",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3')",
        "!cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')",
        "cidr('10.1.2.3/8').prefixLength() == 8 && string(cidr('10.1.2.3/8').ip()) == '10.1.2.3'",
        "ip.isCanonical('::1') && !ip.isCanonical('::0:1') && !isCIDR('10.0.0.0')",
        "url('https://u@example.com:8080/a b?x=1&x=2').getHostname() == 'example.com'",
        "url('https://example.com:8080/a?x=1&x=2').getQuery() == {'x': ['1', '2']}",
        "url('https://[::1]:80/a%20b').getHost() == '[::1]:80' && url('/p').getScheme() == ''",
        "isURL('https://example.com') && !isURL('no url')",
        # formats
        "!format.dns1123Label().validate('a-b').hasValue()",
        "format.dns1123Label().validate('A').hasValue()",
        "format.named('uuid').value().validate('x').value().size() == 1",
        "!format.named('nothing').hasValue() && !format.date().validate('2026-01-02').hasValue()",
        "!format.qualifiedName().validate('example.com/Name').hasValue()",
        "!format.dns1123LabelPrefix().validate('a-').hasValue()",
        # syntax
        "true ? true : 1 / 0 == 1",
        "[1, 2,] == [1, 2] && {'a': 1,} == {'a': 1}",
        "!false && !!true && -(-1) == 1 // a comment",
    ],
)  # fmt: skip
def test_holds(text):
    assert evaluate(text) is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{A}.missing == 1", "no such key: missing"),
        (f"{A}.model > 1", "no such overload"),
        (f"{A}.model.isGreaterThan(semver('1.0.0'))", "no such overload: isGreaterThan(string"),
        (f"{A}.index && true", "no such overload"),
        (f"{A}.links[5] == 1", "index out of bounds: 5"),
        (f"{A}.model.exists(x, x == 'H')", "got 'types.String', expected iterable type"),
        (f"{A}.driverVersion.exists(x, true)", "got 'cel.Semver', expected iterable type"),
        ("{}[dyn({})] == 1", "invalid qualifier type"),
        ("9223372036854775807 + 1 == 0", "integer overflow"),
        ("-9223372036854775808 - 1 == 0", "integer overflow"),
        ("-(-9223372036854775808) == 0", "integer overflow"),
        ("-9223372036854775808 / -1 == 0", "integer overflow"),
        ("9223372036854775807 * 2 == 0", "integer overflow"),
        ("1u - 2u == 0u", "unsigned integer overflow"),
        ("1 / 0 == 1", "division by zero"),
        ("1 % 0 == 1", "modulus by zero"),
        ("timestamp('yester' + 'day') == timestamp(0)", "type conversion error"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s') == timestamp(0)", "overflow"),
        ("optional.none().value() == 1", "optional.none() dereference"),
        ("quantity('1500m').asInteger() == 1", "cannot convert value to integer"),
        ("quantity('x') == quantity('1')", "quantities must match the regular expression"),
        ("semver('v1.0.0') == semver('1.0.0')", "Invalid character(s) found in major number"),
        ("semver('1.0') == semver('1.0.0')", "No Major.Minor.Patch elements found"),
        ("[].min() == 1", "min called on empty list"),
        ("'abc'.substring(2, 1) == ''", "invalid substring range. start: 2, end: 1"),
        ("'abc'.substring(9, 1) == ''", "invalid substring range. start: 9, end: 1"),
        ("'abc'.substring(1, 9) == ''", "index out of range: 9"),
        ("['a', 'b'].transformMap(i, v, v).transformMapEntry(k, v, {1: v}) == {1: 'a'}",
         "insert failed: key 1 already exists"),
        ("('%' + 'd').format(['x']) == ''", "decimal clause can only be used on integers"),
        ("('%' + 's').format([]) == ''", "index 0 out of range"),
        ("int('x' + '') == 1", "type conversion error from 'string' to 'int'"),
        ("int(1e30 * 1.0) == 1", "integer overflow"),
        (f"'x'.matches({A}.model + '(')", "error parsing regexp"),
        ("url(string('')).getHost() == ''", 'parse "": empty url'),
        ("url(' http://a' + '').getHost() == ''", 'parse " http://a": invalid URI for request'),
        ("url('http://a/%z' + 'z').getHost() == ''", 'invalid URL escape "%zz"'),
        ("double('1e4' + '00') == 1.0", "type conversion error from 'string' to 'double'"),
        ("timestamp('2026-01-02T00:00:00' + 'z') == timestamp(0)", "type conversion error"),
        ("url('a' + '\"').getHost() == ''", 'parse "a\\"": invalid URI for request'),
        ("lists.range(2000000).size() == 1", "actual cost limit exceeded"),
        (f"{A}.missing == 1 || {A}.index == 4", "no such key: missing"),
    ],
)  # fmt: skip
def test_fails(text, message):
    with pytest.raises(CELRuntimeError) as caught:
        evaluate(text)
    assert message in caught.value.reason


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 == 1.0", "found no matching overload for '_==_' applied to '(int, double)'"),
        ("int('x') == 1", "instantiation failed: type conversion error from 'string' to 'int'"),
        ("bool(string(2))", "instantiation failed: type conversion error from 'string' to 'bool'"),
        ("int(1e30) == 1", "program instantiation failed: integer overflow"),
        ("'%s'.format([]) == ''", "<input>:1:12: index 0 out of range"),
        ("'%q'.format([1]) == ''", 'unrecognized formatting clause "q"'),
        ("'a'.format([1]) == ''", "supplied to string.format (expected 0, got 1)"),
        ("'%d'.format(['x']) == ''", "1:14: error during formatting: decimal clause can only"),
        ("'%d'.format([name]) == ''", "formatting: decimal clause can only be used on integers"),
        ("'%s'.format([[semver('1.0.0')]]) == ''", "1:21: error during formatting: string clause"),
        ("'%s'.format([{'a': gpu}]) == ''", "and timestamps, was given Gpu"),
        ("'%e'.format([1u]) == ''", "clause can only be used on doubles, was given uint"),
        ("'%x'.format([1 == 2]) == ''", "can be formatted as hex, was given bool"),
        ("'%o'.format([[1]]) == ''", "octal clause can only be used on integers, was given list"),
        ("gpu.capacity.x.y == 1", "unexpected failed resolution of 'kubernetes.Quantity'"),
        ("nothing || other", "ERROR: <input>:1:12: undeclared reference to 'other'"),
        ("1 + 'a' == 1", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("'a'.size(1) == 1", "found no matching overload for 'size' applied to 'string.(int)'"),
        ("gpu.capacity.x > 1",
         "found no matching overload for '_>_' applied to '(kubernetes.Quantity, int)'"),
        ("nothing == 1", "undeclared reference to 'nothing' (in container '')"),
        ("nothing(1)", "undeclared reference to 'nothing'"),
        ("'a'.nothing()", "undeclared reference to 'nothing'"),
        ("sets.nothing([1])", "undeclared reference to 'sets'"),
        ("gpu.nothing", "undefined field 'nothing'"),
        ("name.x == 1", "type 'string' does not support field selection"),
        ("[1, 'a'].size() == 2", "expected type 'int' but found 'string'"),
        ("{'a': 1, 'b': 'x'}.size() == 2", "expected type 'int' but found 'string'"),
        ("1.exists(x, true)", "expression of type 'int' cannot be range of a comprehension"),
        ("1e400 == 1.0", "invalid double literal"),
        ("2.E3 == 1.0", "type 'int' does not support field selection"),
        ("-1u == 1u", "found no matching overload for '-_' applied to '(uint)'"),
        ("1 - 9223372036854775808 == 1", "invalid int literal"),
        ("[dyn(1), 1]", "expected type 'dyn' but found 'int'"),
        ("[1, dyn(1)]", "expected type 'int' but found 'dyn'"),
        ("[[1], [dyn(1)]]", "expected type 'list(int)' but found 'list(dyn)'"),
        ("[1, [2]]", "expected type 'int' but found 'list(int)'"),
        ("{'a': 1, 'b': dyn(1)}", "expected type 'int' but found 'dyn'"),
        ("{dyn(1): 1, 'a': 2}", "expected type 'dyn' but found 'string'"),
        ("(1).exists(x, true)", "expression of type 'int' cannot be range of a comprehension"),
        ("[1].all(x.y, true)", "argument must be a simple name"),
        ("'ab'.sortBy(x, x) == []", "sortBy can only be applied to a list, identifier"),
        ("has(gpu)", "invalid argument to has() macro"),
        ("1 &&", "1:5: Syntax error: mismatched input '<EOF>' expecting {'[', '{'"),
        ("true true", "Syntax error: extraneous input 'true' expecting <EOF>"),
        ("a ~ b", "Syntax error: token recognition error at: '~'"),
        ("if == 1", "reserved identifier: if"),
        ("9223372036854775808 == 1", "invalid int literal"),
        ("'\\q' == ''", "invalid escape sequence"),
        ("a.b{c: 1}", "undeclared reference"),
        ("'x'.matches('(')", "<input>:1:13: invalid matches argument"),
        ("'x'.find('(') == ''", "program instantiation failed: error parsing regexp"),
        ("duration('x') == duration('1s')", "<input>:1:10: invalid duration argument"),
        ("name && true", "<input>:1:1: expected type 'bool' but found 'string'"),
        ("contains(name, 'a')", "found no matching overload for 'contains' applied to"),
        ("gpu.if == 1", "<input>:1:4: undefined field 'if'"),
        ("(" * 500 + "true" + ")" * 500, ""),
        ("[" * 5000 + "]" * 5000, "recursion limit exceeded"),
        ("[" * 1000, "Syntax error"),
        ("", "Syntax error"),
        ("true" * 30000, "exceeds limit"),
    ],
)  # fmt: skip
def test_does_not_compile(text, message):
    found = compile_expression(text, ENVIRONMENT)
    assert isinstance(found, CompileError)
    assert message in found.message


def test_a_fault_is_shown_at_its_place():
    found = compile_expression('true &&\n  gpu.attribtues == ""', ENVIRONMENT)
    assert str(found) == (
        "compilation failed: ERROR: <input>:2:6: undefined field 'attribtues'\n"
        ' |   gpu.attribtues == ""\n'
        " | .....^"
    )


@pytest.mark.slow
def test_a_long_chain_is_no_deep_nesting():
    chain = " && ".join(["name != ''"] * 3000)
    assert evaluate(chain)


NESTED = [
    "LAST == LAST",
    "LAST != LAST",
    "dyn(LAST) in [dyn(LAST)]",
    "'%s'.format([LAST]) == ''",
    "LAST.flatten(40) == []",
    "LAST.indexOf([]) == 0",
    "LAST.distinct() == []",
    "sets.contains(LAST, LAST)",
    "[optional.of(LAST)] == [optional.of(LAST)]",
]


@pytest.mark.parametrize("text", NESTED)
def test_lists_of_a_list_of_lists_cost_what_is_in_them(text):
    """Each list has the former twice, the last one four million elements."""
    whole = text.replace("LAST", "v22")
    for number in range(22, 0, -1):
        whole = f"cel.bind(v{number}, [v{number - 1}, v{number - 1}], {whole})"
    value, cost = compiled(f"cel.bind(v0, [1], {whole})").program.attempt(ACTIVATION)
    assert isinstance(value, CostLimitError)
    assert cost >= LIMIT


def test_joining_long_lists_in_a_loop_has_a_cost():
    text = "lists.range(1000).map(i, (v10 + v10).size()).size() == 1000"
    for number in range(10, 0, -1):
        text = f"cel.bind(v{number}, v{number - 1} + v{number - 1}, {text})"
    text = f"cel.bind(v0, lists.range(100), {text})"
    value, cost = compiled(text).program.attempt(ACTIVATION)
    assert isinstance(value, CostLimitError)
    assert cost >= LIMIT


@pytest.mark.parametrize(
    "text",
    [
        "lists.range(4).map(i, lists.range(i)) == [[], [0], [0, 1], [0, 1, 2]]",
        "lists.range(5).filter(i, i % 2 == 0).map(i, 7) == [7, 7, 7]",
        "lists.range(3).map(i, i > 0, [i].map(j, j + i)) == [[2], [4]]",
        "lists.range(2).transformMap(i, v, lists.range(2).transformMap(j, w, i + j)) =="
        " {0: {0: 0, 1: 1}, 1: {0: 1, 1: 2}}",
        "lists.range(60000).map(i, i).size() == 60000",
    ],
)
def test_loops_make_lists_and_maps(text):
    assert evaluate(text) is True


def test_the_cost_limit_is_absorbed_by_nothing():
    loop = (
        "lists.range(100).all(a, lists.range(100).all(b, lists.range(100).all(c, a + b + c >= 0)))"
    )
    assert evaluate(f"true || {loop}")
    with pytest.raises(CELRuntimeError, match="actual cost limit exceeded"):
        evaluate(f"{loop} || true")


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e21, "1e+21"), (123456.0, "123456"), (0.00001, "1e-05"), (-0.0, "-0"), (100000.0, "100000"),
     (1e100, "1e+100"), (-1234567.5, "-1.2345675e+06"), (float("inf"), "+Inf")],
)  # fmt: skip
def test_doubles_print_as_in_go(value, text):
    assert to_string(value) == text


@pytest.mark.parametrize(
    "text",
    [
        f"{A}['lacks'] == 1",
        f"{A}['lacks'] == 1 || name == 'b'",
        f"[1, 2].exists(each, {A}['lacks'] == each)",
        f"cel.bind(lacks, {A}['lacks'], lacks == 1 || lacks == 2)",
    ],
)
def test_an_error_leaves_nothing_to_the_garbage_collector(text):
    expression = compiled(text)

    def attempt():
        error, _ = expression.program.attempt(ACTIVATION)
        assert isinstance(error, CELRuntimeError)

    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            attempt()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_calls_with_two_scalars_cost_one():
    """The evaluator does not ask their cost."""
    samples = {bool: True, int: 2, Uint: Uint(2), float: 2.0}
    assert set(product(samples, repeat=2)) == SCALAR_PAIRS
    asked = 0
    for name, function in REGISTRY.items():
        for classes in SCALAR_PAIRS:
            arguments = tuple(map(samples.__getitem__, classes))
            if name in CALL_COSTS and choose(function, arguments) is not None:
                asked += 1
                assert CALL_COSTS[name](arguments) == 1, (name, classes)
    assert asked > 50


@pytest.mark.parametrize("text", ["dyn({0}) {1} {2}", "[dyn({0})].exists(x, x {1} {2})"])
@pytest.mark.parametrize(
    ("left", "right", "holds"),
    [
        ("1", "2u", ("<", "<=")),
        ("2.5", "2", (">", ">=")),
        ("9007199254740993", "9007199254740992.0", ("<=", ">=")),
        ("18446744073709551615u", "-1", (">", ">=")),
        ("true", "false", (">", ">=")),
        ("'a'", "'b'", ("<", "<=")),
        ("b'b'", "b'b'", ("<=", ">=")),
        ("duration('1s')", "duration('2s')", ("<", "<=")),
    ],
)
def test_order(text, left, right, holds):
    for operator in ("<", "<=", ">", ">="):
        assert evaluate(text.format(left, operator, right)) is (operator in holds)


@pytest.mark.parametrize("text", ["dyn({}) {} {}", "[dyn({})].exists(x, x {} {})"])
@pytest.mark.parametrize(("left", "right"), [("0.0 / 0.0", "1"), ("1.0", "double('NaN')")])
@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
def test_nothing_is_ordered_beside_nan(text, left, right, operator):
    with pytest.raises(CELRuntimeError) as caught:
        evaluate(text.format(left, operator, right))
    assert caught.value.reason == "NaN values cannot be ordered"
    assert evaluate(f"dyn({left}) != {right}")


@pytest.mark.parametrize("call", ["double('{}')", "isQuantity('{}')", "quantity('{}') == null"])
def test_a_long_text_that_is_no_number_is_read_in_one_pass(call):
    """The longest that an expression may have: its digits must not be divided in every way."""
    compiled("true")  # reads the grammar
    with cpu_limit(processor_seconds(0.3)):
        program = compile_expression(call.format("1" * 10_000 + "x"), ENVIRONMENT)
        if not isinstance(program, CompileError):
            with suppress(CELRuntimeError):
                program.evaluate(ACTIVATION)
