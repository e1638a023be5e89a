"""The values of a gauge, shown one after another."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge

from kai_py.observe.metrics import GaugeValues

LABELS = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["gpu", "cpu"]))
VALUES = st.dictionaries(LABELS, st.sampled_from([0.0, 1.0, 2.5]))


@given(st.lists(VALUES, max_size=5))
def test_a_gauge_shows_the_last_values_and_nothing_else(courses):
    registry = CollectorRegistry()
    values = GaugeValues(Gauge("g", "", ("queue", "resource"), registry=registry))
    for each in courses:
        values.show(each)
        [family] = registry.collect()
        found = {tuple(sample.labels.values()): sample.value for sample in family.samples}
        assert found == each
