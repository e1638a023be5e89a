import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_py.api.queue import InvalidQueueError, read_queue


def queue(name="q", **spec):
    return {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name, "labels": {"team": "a"}},
        "spec": spec,
    }


def problems(document, unknown="forbid"):
    with pytest.raises(InvalidQueueError) as caught:
        read_queue(document, unknown=unknown)
    return [str(problem) for problem in caught.value.problems]


def test_an_error_lists_the_first_problems_and_counts_the_others():
    with pytest.raises(InvalidQueueError) as caught:
        read_queue(queue(devices=[1] * 5000))
    text = str(caught.value)
    assert "spec.devices[9]: must be a mapping of fields; and " in text
    assert text.endswith(" more problems")
    assert len(text) < 1000 < len(caught.value.problems)


def test_the_three_field_queue():
    spec = read_queue(queue(deservedGPUs=8, maxGPUs=16, priority=100), unknown="forbid").spec
    assert (spec.deserved_gpus, spec.max_gpus, spec.priority, spec.weight) == (8, 16, 100, 1)


def test_defaults_promise_nothing_and_forbid_nothing():
    spec = read_queue(queue()).spec
    assert (spec.deserved_gpus, spec.max_gpus, spec.priority) == (0, None, 100)
    assert spec.namespaces is None
    assert spec.parent is None


def test_every_optional_field():
    spec = read_queue(
        queue(
            deservedGPUs=0.5,
            parent="all",
            weight=2,
            resources={
                "cpu": {"deserved": 64},
                "memory": {"deserved": "1Gi", "max": "2Gi"},
                **{name: {"max": 4} for name in ("pods", "ephemeral-storage", "hugepages-2Mi")},
                "nvidia.com/gpu": {"max": 4},
            },
            devices=[{"name": "a", "deviceClassName": "gpu.nvidia.com", "deserved": 4, "max": "8"}],
            preemptMinRuntime="10m",
            reclaimMinRuntime="1h",
            reserveAfter="5m",
            ageing="10m",
            ageingLimit=3,
            namespaces={"selector": {"matchLabels": {"team": "a"}}},
        ),
        unknown="forbid",
    ).spec
    assert spec.resources["memory"].max.value() == 2 << 30
    assert spec.resources["cpu"].max is None
    assert spec.devices[0].max.value() == 8
    assert (spec.preempt_min_runtime, spec.reclaim_min_runtime) == (600, 3600)
    assert (spec.ageing, spec.ageing_limit) == (600, 3)
    assert spec.namespaces.selector.match_labels == {"team": "a"}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"deservedGPUs": 8, "maxGPUs": 6}, "spec: maxGPUs must be at least deservedGPUs"),
        ({"deservedGPUs": -1}, "spec.deservedGPUs: must be greater than or equal to 0"),
        ({"deservedGPUs": "8"}, "spec.deservedGPUs: must be a number"),
        ({"parent": "q"}, "a queue cannot be its own parent"),
        ({"parent": "Not A Name"}, "spec.parent: "),
        ({"resources": {"cpu": {"deserved": 2, "max": "1500m"}}}, "spec.resources.cpu: max must"),
        ({"resources": {"cpu": {"deserved": "-1"}}}, "spec.resources.cpu.deserved: '-1' is neg"),
        ({"resources": {"cpu": {"deserved": 0.5}}}, "must be quoted"),
        ({"resources": {"gpu": {"max": 4}}}, "spec: resources are cpu, memory, "),
        ({"resources": {"cpus": {"max": 4}}}, "spec: resources are cpu, memory, "),
        ({"resources": {"memory": {"max": "2GB"}}}, "spec.resources.memory.max: "),
        ({"devices": [{"name": "a"}]}, "spec.devices[0]: set exactly one of deviceClassName"),
        ({"devices": [{"name": "a", "attribute": "d/x"}]}, "values belong to attribute"),
        ({"devices": [{"name": "a", "deviceClassName": "x"}] * 2}, "two entries named 'a'"),
        ({"namespaces": {}}, "spec.namespaces: set names or selector"),
        ({"reserveAfter": "5 minutes"}, "spec.reserveAfter: '5 minutes' is not a duration"),
        ({"ageing": 0}, "spec.ageing: 0 is not text: write it like 30s"),
        ({"spotFallback": {"after": 600}}, "spec.spotFallback.after: 600 is not text"),
        ({"maxGPU": 3}, "spec.maxGPU: no such field; did you mean maxGPUs?"),
        ({"deservedGpus": 3}, "spec.deservedGpus: no such field; did you mean deservedGPUs?"),
        (
            {"resources": {"cpu": {"limit": 1}}},
            "spec.resources.cpu.limit: no such field; known are deserved, max, weight",
        ),
    ],
)
def test_a_broken_rule_names_the_field(spec, problem):
    assert any(problem in found for found in problems(queue(**spec)))


def test_every_problem_is_reported_at_once():
    assert len(problems(queue(deservedGPUs=-1, priority="high", weight=-1))) == 3


def test_fields_of_a_newer_version_are_ignored_when_reading_from_the_server():
    read_queue(queue(fromTheFuture=1), unknown="ignore")
    assert problems(queue(fromTheFuture=1), unknown="forbid")


@given(st.floats(0, 1e6), st.one_of(st.none(), st.floats(0, 1e6)))
def test_max_below_deserved_is_the_only_reason_to_refuse_gpu_counts(deserved, maximum):
    spec = {"deservedGPUs": deserved} | ({} if maximum is None else {"maxGPUs": maximum})
    if maximum is not None and maximum < deserved:
        assert problems(queue(**spec))
    else:
        read_queue(queue(**spec), unknown="forbid")


def test_a_status_survives_writing_and_reading():
    document = queue() | {
        "status": {
            "observedGeneration": 3,
            "allocated": {"gpus": "7500m", "memory": "64Gi"},
            "pendingGangs": 2,
            "pending": [{"reason": "OverMax", "gangs": 2, "pods": 16}],
            "usage": {"observedAt": "2026-01-01T00:00:00Z", "halfLife": "24h", "used": {"gpus": 5}},
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Ready",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
        }
    }
    status = read_queue(document, unknown="forbid").status
    assert status.allocated["gpus"].milli() == 7500
    written = status.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert written == document["status"] | {
        "usage": document["status"]["usage"] | {"used": {"gpus": 5.0}}
    }
