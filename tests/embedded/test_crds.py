import pytest

from kai_py.embedded.deletion import delete
from kai_py.embedded.errors import RequestError
from kai_py.embedded.resources import Registry
from tests.embedded.manifests import queue, queue_definition
from tests.support.cpu_limit import cpu_limit
from tests.support.patience import processor_seconds


@pytest.fixture
def queues(bare):
    bare.create(queue_definition())
    return bare.registry.named("queues.example.com")


def causes(call, *args, **kwargs):
    with pytest.raises(RequestError) as caught:
        call(*args, **kwargs)
    assert caught.value.code == 422
    return [(cause["field"], cause["reason"]) for cause in caught.value.details["causes"]]


def test_a_definition_is_established_and_served(bare, queues):
    definition = bare.api.list(
        bare.registry.named("customresourcedefinitions.apiextensions.k8s.io")
    )[0]
    conditions = {each["type"]: each["status"] for each in definition["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert (queues.kind, queues.short_names, queues.namespaced) == ("Queue", ("q",), False)


def test_unknown_fields_are_pruned_and_defaults_set(bare, queues):
    created = bare.create({**queue("a", deservedGPUs=1, colour="red"), "extra": 1})
    assert created["spec"] == {"deservedGPUs": 1, "priority": 100}
    assert "extra" not in created
    assert queues.unknown_fields({**queue("a", colour="red"), "extra": 1}) == [
        "spec.colour",
        "extra",
    ]


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({}, ("spec.deservedGPUs", "FieldValueRequired")),
        ({"deservedGPUs": "1"}, ("spec.deservedGPUs", "FieldValueTypeInvalid")),
        ({"deservedGPUs": True}, ("spec.deservedGPUs", "FieldValueTypeInvalid")),
        ({"deservedGPUs": -1}, ("spec.deservedGPUs", "FieldValueInvalid")),
        ({"deservedGPUs": 1, "mode": "odd"}, ("spec.mode", "FieldValueNotSupported")),
        ({"deservedGPUs": 8, "maxGPUs": 4}, ("spec", "FieldValueInvalid")),
    ],
)
def test_the_schema_and_its_rules_are_enforced(bare, queues, spec, cause):
    assert causes(bare.create, queue("a", **spec)) == [cause]


@pytest.mark.slow
def test_lists_by_key_have_each_key_once_and_objects_only(bare):
    definition = queue_definition()
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["devices"] = {
        "type": "array",
        "items": {"type": "object", "properties": {"name": {"type": "string"}}},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    bare.create(definition)

    def create(*devices):
        return bare.create(queue("a", deservedGPUs=1, devices=list(devices)))

    junk = causes(create, {"name": "x"}, 1, {"name": "x"})
    assert junk == [
        ("spec.devices[1]", "FieldValueTypeInvalid"),
        ("spec.devices[2]", "FieldValueDuplicate"),
    ]
    with cpu_limit(processor_seconds(10.0)):
        create(*({"name": f"device-{i}"} for i in range(50_000)))


def test_transition_rules_see_the_old_object(bare, queues):
    created = bare.create(queue("a", deservedGPUs=1, mode="soft"))
    harder = {**created, "spec": {**created["spec"], "mode": "hard"}}
    assert causes(bare.api.update, queues, "a", harder) == [("spec", "FieldValueInvalid")]


def test_a_custom_update_must_name_its_revision(bare, queues):
    bare.create(queue("a", deservedGPUs=1))
    fields = causes(bare.api.update, queues, "a", queue("a", deservedGPUs=2))
    assert fields[0][0] == "metadata.resourceVersion"


def test_the_status_endpoint_prunes_and_checks_too(bare, queues):
    created = bare.create(queue("a", deservedGPUs=1))
    assert "status" not in created
    document = {**created, "status": {"allocated": 3, "colour": "red"}}
    written = bare.api.update(queues, "a", document, subresource="status")
    assert written["status"] == {"allocated": 3}
    assert written["metadata"]["generation"] == 1
    document = {**written, "status": {"allocated": "three"}}
    fields = causes(bare.api.update, queues, "a", document, subresource="status")
    assert fields == [("status.allocated", "FieldValueTypeInvalid")]


def test_deleting_the_definition_deletes_its_objects(bare, queues):
    bare.create(queue("a", deservedGPUs=1))
    definitions = bare.registry.named("customresourcedefinitions.apiextensions.k8s.io")
    delete(bare.api, definitions, "queues.example.com")
    assert bare.store.list("queues.example.com") == []
    with pytest.raises(RequestError):
        bare.registry.named("queues.example.com")


def test_versions_are_views_of_the_same_objects(bare):
    definition = queue_definition()
    first = definition["spec"]["versions"][0]
    definition["spec"]["versions"].append({**first, "name": "v2", "storage": False})
    bare.create(definition)
    bare.create({**queue("a", deservedGPUs=1), "apiVersion": "example.com/v2"})
    shown = {
        version: bare.api.get(bare.registry.at("example.com", version, "queues"), "a")["apiVersion"]
        for version in ("v1", "v2")
    }
    assert shown == {"v1": "example.com/v1", "v2": "example.com/v2"}
    assert bare.store.get("queues.example.com", "", "a")["apiVersion"] == "example.com/v1"


def test_what_cannot_be_done_is_refused(bare):
    broken = queue_definition()
    spec = broken["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["x-kubernetes-validations"] = [{"rule": "self.a >"}]
    place = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    assert causes(bare.create, broken) == [(place, "FieldValueInvalid")]
    webhook = queue_definition()
    webhook["spec"]["conversion"] = {"strategy": "Webhook"}
    with pytest.raises(RequestError) as caught:
        bare.create(webhook)
    assert caught.value.code == 501
    misnamed = queue_definition()
    misnamed["metadata"]["name"] = "queue.example.com"
    assert causes(bare.create, misnamed)[0][0] == "metadata.name"


def test_removing_from_the_registry_leaves_the_built_in_kinds():
    registry = Registry()
    before = [each.group_resource for each in registry]
    registry.remove("queues.example.com")
    assert [each.group_resource for each in registry] == before


@pytest.mark.parametrize("spec", ["text", 5, [], None])
def test_the_spec_of_a_custom_resource_is_whatever_its_schema_allows(bare, spec):
    definition = queue_definition()
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = anything
    bare.create(definition)
    queues = bare.registry.named("queues.example.com")
    bare.create({**queue("a"), "spec": spec})
    delete(bare.api, queues, "a")
    assert bare.api.list(queues) == []
