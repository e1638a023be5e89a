"""Random selectors and devices that fit each other often enough to be interesting."""

from hypothesis import strategies as st

from kai_py.api.quantity import parse_quantity
from kai_py.dra.selectors.device import CELDevice, attribute_value

DRIVERS = ("a.example.com", "b.example.com")
NAMES = ("model", "index", "healthy", "links")
LITERALS = ('"H100"', '"A100"', '""', "0", "1", "2", "true", "false")

attributes = st.one_of(
    st.sampled_from(["H100", "A100", ""]),
    st.integers(0, 2),
    st.booleans(),
    st.lists(st.integers(0, 2), max_size=3).map(lambda held: attribute_value(ints=tuple(held))),
    st.lists(st.sampled_from(["H100", "x"]), max_size=2).map(
        lambda held: attribute_value(strings=tuple(held))
    ),
)
versions = st.sampled_from(["1.0.0", "1.2.0-rc.1"]).map(lambda text: attribute_value(version=text))


def names(*, driver_prefix=True):
    domains = ["", *(f"{driver}/" for driver in DRIVERS)] if driver_prefix else [""]
    return st.builds(str.__add__, st.sampled_from(domains), st.sampled_from(NAMES))


def devices(values=attributes):
    return st.builds(
        CELDevice,
        driver=st.sampled_from(DRIVERS),
        attributes=st.dictionaries(names(), values, max_size=5),
        capacity=st.dictionaries(
            st.sampled_from(["memory", "cores", "b.example.com/memory"]),
            st.sampled_from(["1Gi", "1024Mi", "40Gi", "500m"]).map(parse_quantity),
            max_size=2,
        ),
        allow_multiple_allocations=st.booleans(),
    )


domains = st.sampled_from([f'device.attributes["{driver}"]' for driver in (*DRIVERS, "c")])
capacities = st.sampled_from([f'device.capacity["{driver}"]' for driver in DRIVERS])
name = st.sampled_from(NAMES)
literal = st.sampled_from(LITERALS)

typed = {
    "model": st.sampled_from(["H100", "A100", ""]),
    "index": st.integers(0, 2),
    "healthy": st.booleans(),
    "links": st.lists(st.integers(0, 2), min_size=1, max_size=3).map(
        lambda held: attribute_value(ints=tuple(held))
    ),
}
"""Attributes that have the same type on every device that has them."""

typed_devices = st.builds(
    CELDevice,
    driver=st.sampled_from(DRIVERS),
    attributes=st.fixed_dictionaries({}, optional={**typed, "b.example.com/model": typed["model"]}),
    capacity=st.dictionaries(
        st.sampled_from(["memory", "cores"]),
        st.sampled_from(["1Gi", "1024Mi", "40Gi", "2"]).map(parse_quantity),
        max_size=2,
    ),
    allow_multiple_allocations=st.booleans(),
)
text = st.sampled_from(['"H100"', '"A100"', '""'])
number = st.integers(-1, 3)

typed_atoms = st.one_of(
    st.builds("{}.model {} {}".format, domains, st.sampled_from(["==", "!=", "<", ">="]), text),
    st.builds("{}.index {} {}".format, domains, st.sampled_from(["==", "!=", "<", ">="]), number),
    st.builds("{}.index + {} > {} * 2 - {}".format, domains, number, number, number),
    st.builds("6 / {}.index == {}".format, domains, number),
    st.builds("-7 % {}.index == {}".format, domains, number),
    st.builds("{}.healthy == {}".format, domains, st.sampled_from(["true", "false"])),
    st.builds("{}.healthy".format, domains),
    st.builds('{}["model"] == {}.model'.format, domains, domains),
    st.builds("{} in {}.links".format, number, domains),
    st.builds("{}.links[{}] == {}".format, domains, st.integers(0, 3), number),
    st.builds("{}.links.size() == {}".format, domains, number),
    st.builds("{}.links.{}(x, x == {})".format,
              domains, st.sampled_from(["all", "exists", "exists_one"]), number),
    st.builds("{}.links.map(x, x + 1).exists(x, x == {})".format, domains, number),
    st.builds("{}.links.filter(x, x > {}).size() == {}".format, domains, number, number),
    st.builds("size({}.model) == {}".format, domains, st.integers(0, 4)),
    st.builds("({}.model + {}).size() == {}".format, domains, text, st.integers(0, 8)),
)  # fmt: skip
common_atoms = st.one_of(
    st.builds("has({}.{})".format, domains, name),
    st.builds('"{}" in {}'.format, name, domains),
    st.builds('"{}" in device.attributes'.format, st.sampled_from(DRIVERS)),
    st.builds('device.driver == "{}"'.format, st.sampled_from(DRIVERS)),
    st.builds('{}.model.startsWith("H")'.format, domains),
    st.builds('{}.model.matches("^[HA]1")'.format, domains),
    st.builds('{}.memory.isGreaterThan(quantity("2Gi"))'.format, capacities),
    st.builds("{}.exists(k, k == 'model')".format, domains),
    st.sampled_from(["true", "false", "1 / 0 == 1", "device.allowMultipleAllocations"]),
)
own_atoms = st.one_of(
    st.builds("{}.{} == {}".format, domains, name, literal),
    st.builds("{}.{} != {}".format, domains, name, literal),
    st.builds('{}["{}"] == {}.{}'.format, domains, name, domains, name),
    st.builds("{}.{} {} {}".format, domains, name, st.sampled_from("<>"), st.integers(0, 2)),
    st.builds("{}.{}".format, domains, name),
    st.builds("{}.{} in [0, 1]".format, domains, name),
    st.builds("[0, 1, 2].exists(i, i == {}.{})".format, domains, name),
    st.builds("{}.?{}.orValue({}) == {}".format, domains, name, literal, literal),
    st.builds('{}[?"{}"].hasValue()'.format, domains, name),
    st.builds("cel.bind(d, {}, d.{} == {} && d.{} == {})".format,
              domains, name, literal, name, literal),
    st.builds("cel.bind(d, {}, has(d.{}) || d.all(d, d != 'x'))".format, domains, name),
    st.builds("{}.{}.exists(x, x == {})".format, domains, name, literal),
    st.builds("{}.{}.includes({})".format, domains, name, literal),
    st.builds('{}.{}.isLessThan(semver("1.2.0"))'.format, domains, name),
    st.builds("{}.exists(k, v, v == {})".format, domains, literal),
    st.builds("device.attributes.all(d, size(device.attributes[d]) < {})".format,
              st.integers(1, 3)),
    st.builds("{} == quantity('1Gi')".format, st.builds("{}.memory".format, capacities)),
)  # fmt: skip


def selectors(atoms):
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.builds("({} && {})".format, inner, inner),
            st.builds("({} || {})".format, inner, inner),
            st.builds("!({})".format, inner),
            st.builds("(({}) ? ({}) : ({}))".format, inner, inner, inner),
        ),
        max_leaves=6,
    )
