import yaml

from kai_py.api.crd import crd_yaml, crds, queue_crd
from kai_py.api.queue import Queue
from tests.support.repository import CRDS

STRUCTURAL_KEYS = {
    *("description", "type", "default", "required", "properties", "items", "additionalProperties"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties"),
    *("pattern", "format", "enum", "anyOf"),
}
INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


def schema():
    return queue_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def nodes(node, path="", depth=0):
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from nodes(node[key], f"{path}[{key}]")


def test_committed_files_are_what_the_models_give():
    generated = {name: crd_yaml(crd) for name, crd in crds().items()}
    committed = {path.name: path.read_text(encoding="utf-8") for path in CRDS.glob("*.yaml")}
    assert committed == generated, "run `make generate` and commit the result"


def test_yaml_is_the_crd():
    assert yaml.safe_load(crd_yaml(queue_crd())) == queue_crd()


def test_schema_is_structural():
    for path, node in nodes(schema()):
        unknown = {key for key in node if not key.startswith("x-kubernetes-")} - STRUCTURAL_KEYS
        assert not unknown, path
        assert isinstance(node.get("additionalProperties", {}), dict), path
        if node.get("x-kubernetes-int-or-string"):
            assert node["anyOf"] == INT_OR_STRING, path
        else:
            assert "type" in node, path
            assert "anyOf" not in node, path


def test_whatever_a_rule_may_walk_is_bounded():
    spec = schema()["properties"]["spec"]
    for path, node in nodes(spec):
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path
        if node.get("type") == "string":
            assert "maxLength" in node or "enum" in node, path


def test_rules_stand_where_their_fields_are():
    rules = {
        path: [rule["rule"] for rule in node.get("x-kubernetes-validations", ())]
        for path, node in nodes(schema())
    }
    assert rules[""] == ["!has(self.spec.parent) || self.spec.parent != self.metadata.name"]
    bounds, names = rules[".spec"]
    assert bounds == "!has(self.maxGPUs) || self.maxGPUs >= self.deservedGPUs"
    assert names.startswith("!has(self.resources) || ")
    assert len(rules[".spec.resources[additionalProperties]"]) == 1
    assert len(rules[".spec.devices[items]"]) == 3


def test_printer_columns_point_at_fields_that_exist():
    known = {path for path, _ in nodes(schema())}
    for column in queue_crd()["spec"]["versions"][0]["additionalPrinterColumns"]:
        path = column["jsonPath"].split("[")[0].removesuffix(".gpus")
        assert path in known or path == ".metadata.creationTimestamp", column


def undescribed(path, node):
    return not path.endswith("]") and "description" not in node


def test_every_field_is_described():
    assert not [
        path for path, node in nodes(schema()["properties"]["spec"]) if undescribed(path, node)
    ]
    assert set(schema()["properties"]) == {field.alias for field in Queue.model_fields.values()}
