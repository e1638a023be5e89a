"""Which selectors of devices the API server accepts, and what it says of the others.

Only on the real control plane: the embedded one checks selectors with the code under test.
"""

import pytest

from kai_py.cel.expression import CompileError
from kai_py.dra.selectors.selector import SelectorFeatures, compile_selector
from tests.cluster.conformance.place import claim
from tests.support.cluster.api import ApiError
from tests.support.cluster.clusters import Cluster

AS_SERVED = SelectorFeatures(list_attributes=False)
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
EXPRESSIONS = [
    "A.x.all(v, v == 1)",
    "A.x.exists(v, true)",
    "A.x.map(v, v).size() > 0",
    "A.x.filter(v, true) == []",
    "A.x > 3",
    "A.x + 1 == 2",
    "A.x",
    "!A.x",
    "A.x && true",
    "A.x.y == 1",
    "has(A.x.y)",
    "A.x['y'] == 1",
    "A.x[0] == 1",
    "A.x in [1]",
    "1 in A.x",
    "A.x.size() > 1",
    "size(A.x) > 1",
    "A.x.startsWith('a')",
    "A.x == null",
    "[A.x].all(v, v == 1)",
    "[A.x, 1].size()==2",
    "(A.x ? 1 : 2) == 1",
    "(true ? A.x : 1) == 1",
    "(true ? A.x : [1]).all(v, v==1)",
    "[A.x][0].all(v, true)",
    "dyn(A.x).all(v, true)",
    "A.all(k, k == 'a')",
    "A.x.matches('a')",
    "A.x.isGreaterThan(semver('1.0.0'))",
    "A.x.compareTo(semver('1.0.0')) > 0",
    "cel.bind(v, A.x, v.all(w, true))",
    "A.?x.orValue([1]).all(v, true)",
    "A.?x.hasValue()",
    "A.exists(k, A[k].all(v,true))",
    "A.x.includes('a')",
    "A.x.existsOne(v, true)",
    "A.x.sum() > 1",
    "bool(A.x)",
    "string(A.x) == 'a'",
    "A.x.indexOf('a') == 1",
    "A.x.foo() == 1",
    "[dyn(1), 1].size()==2",
    "[1, dyn(1)].size()==2",
    "[dyn(1), dyn('a')].size()==2",
    "[1, null].size()==2",
    "[null, 1].size()==2",
    "[[1],[dyn(1)]].size()==2",
    "[[], [1]].size()==2",
    "[[1], []].size()==2",
    "[A.x, A.y].size()==2",
    "[1, A.x].size()==2",
    "{'a': A.x, 'b': 1}.size()==2",
    "{'a': 1, 'b': A.x}.size()==2",
    "{'a': 1, 'b': 'c'}.size()==2",
    "{'a': 1, 2: 1}.size()==2",
    "[1].existsOne(v, true)",
    "[1].exists_one(v, true)",
    "[1].existsOne(i, v, true)",
    "'%s %d'.format(['a', 1]) == ''",
    "[1, 1u].size()==2",
    "[1, 1.0].size()==2",
    "[optional.of(1), optional.none()].size()==2",
    "[{}, {'a':1}].size()==2",
    "[?optional.of(1), 2].size()==2",
    "[dyn([1]), [1]].size()==2",
    "[1, true ? dyn(1) : 1].size()==2",
    "[device.capacity['a'].m, quantity('1')].size()==2",
    "[semver('1.0.0'), quantity('1')].size()==2",
    "[timestamp('2020-01-01T00:00:00Z'), null].size()==2",
    "[[1],[[]]].size() == 2",
    "[dyn(1) == 1, true].size()==2",
    "{dyn(1): 1, 'a': 2}.size()==2",
    "[1, [2][0]].size() == 2",
    "[[dyn(1)], [1]].size()==2",
    "['a', device.driver].size() == 2",
    "[[],[]].size()==2",
    "[null,null].size()==2",
    "[{},{}].size()==2",
]
"""A stands for the attributes of a domain."""


@pytest.mark.slow
async def test_selectors_are_judged_as_the_api_server_judges_them(real: Cluster):
    different = {}
    for short in EXPRESSIONS:
        text = short.replace("A", "device.attributes['e.com']")
        theirs, ours = await verdict(real, text), ""
        compiled = compile_selector(text, AS_SERVED)
        if isinstance(compiled, CompileError):
            ours = first_line(str(compiled))
        if ours != theirs and not (ours and "existsOne" in theirs):
            different[short] = (ours, theirs)
    assert different == {}


async def verdict(real: Cluster, text: str) -> str:
    """What the server says of a claim with this selector; "" if it takes it."""
    body = claim("c")
    exactly = body["spec"]["devices"]["requests"][0]["exactly"]
    exactly["selectors"] = [{"cel": {"expression": text}}]
    try:
        await real.api.request("POST", CLAIMS, body, parameters={"dryRun": "All"})
    except ApiError as error:
        return first_line(str(error))
    return ""


def first_line(message: str) -> str:
    return message.partition("compilation failed: ")[2].partition("\n")[0]
