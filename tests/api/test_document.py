"""Documents keep what paths name, and nothing else."""

from kai_py.api.records.unstructured import unstructured

JOB = {
    "apiVersion": "example.com/v1",
    "kind": "Job",
    "metadata": {"name": "j", "labels": {"a": "b"}},
    "spec": {
        "roles": {
            "Master": {"replicas": 1, "template": {"image": "x"}},
            "Worker": {"replicas": 4, "template": {"image": "x", "marks": {"size": "2"}}},
        },
        "tasks": [{"name": "a", "count": 2, "more": 1}, {"name": "b"}],
        "queue": None,
    },
    "status": {"phase": "Running"},
}


def test_only_named_fields_are_kept():
    found = unstructured(JOB, ["spec.tasks.*.count"])
    assert found.content == {"spec": {"tasks": [{"count": 2}, {}]}}
    assert (found.kind, found.metadata.name, found.metadata.labels) == ("Job", "j", {"a": "b"})


def test_a_field_named_beside_a_star_keeps_both():
    found = unstructured(JOB, ["spec.roles.*.replicas", "spec.roles.Worker.template.marks"])
    assert found.content["spec"]["roles"] == {
        "Master": {"replicas": 1},
        "Worker": {"replicas": 4, "template": {"marks": {"size": "2"}}},
    }


def test_a_path_that_ends_keeps_all_below_whatever_longer_paths_say():
    found = unstructured(JOB, ["spec.roles", "spec.roles.*.replicas"])
    assert found.content["spec"]["roles"] == JOB["spec"]["roles"]


def test_values_at_a_path_leave_out_absent_and_null_ones():
    found = unstructured(JOB, ["spec"])
    assert found.all_at("spec.roles.*.replicas") == (1, 4)
    assert found.all_at("spec.tasks.*.count") == (2,)
    assert found.first_at("spec.queue") is None
    assert found.first_at("spec.tasks.count") is None
