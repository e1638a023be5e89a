"""The base model of objects that users write, and the field types that models share.

Models are pydantic, frozen, in camelCase outside and snake_case inside, and reject unknown fields.
The CRDs are generated from the same models, so limits are part of the field types: they bound what
a document may cost, and the API server needs them to bound the cost of CEL rules.
"""

import ast
import inspect
import re
import textwrap
from itertools import pairwise
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from kai_py.api.name_patterns import DNS_SUBDOMAIN, LABEL_NAME
from kai_py.api.quantity import Quantity, QuantityError, parse_quantity

NAME_PATTERN = rf"^{DNS_SUBDOMAIN}$"
QUALIFIED_NAME_PATTERN = rf"^({DNS_SUBDOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$"
LABEL_VALUE_PATTERN = rf"^({LABEL_NAME})?$"
HTTP_PATTERN = r"^https?://[^/]"
QUANTITY_PATTERN = (
    r"^\+?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]+)?$"
)


def _non_negative_quantity(value: object) -> Quantity:
    if isinstance(value, Quantity):
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(f"{value!r} is not a quantity: write it like 16, 500m or 64Gi")
    if isinstance(value, float) and not value.is_integer():
        raise QuantityError(f'{value!r} must be quoted: "{value!r}"')
    quantity = parse_quantity(value)
    if quantity.nano < 0:
        raise QuantityError(f"{value!r} is negative; an amount is zero or more")
    return quantity


Amount = Annotated[
    Quantity,
    PlainValidator(_non_negative_quantity),
    PlainSerializer(str, return_type=str),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "minimum": 0,
            "pattern": QUANTITY_PATTERN,
            "maxLength": 32,
        }
    ),
]
"""A Kubernetes quantity of zero or more."""

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=NAME_PATTERN)]
QualifiedName = Annotated[str, Field(min_length=1, max_length=316, pattern=QUALIFIED_NAME_PATTERN)]
"""The key of a label or taint, or a condition type."""
LabelValue = Annotated[str, Field(max_length=63, pattern=LABEL_VALUE_PATTERN)]


def _camel(name: str) -> str:
    return re.sub(r"Gpus\b", "GPUs", to_camel(name))


def cel_rule(rule: str, message: str, *, field: str | None = None) -> JsonDict:
    """One entry of ``x-kubernetes-validations``; ``field``: the path reported, such as ``.max``."""
    entry: JsonDict = {"rule": rule, "message": message}
    return entry | {"fieldPath": field} if field else entry


def with_cel_rules(*rules: JsonDict) -> ConfigDict:
    """The configuration of a model whose objects must also satisfy these CEL rules."""
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": [*rules]})


def list_map(key: str) -> JsonDict:
    """The schema of a list whose entries are identified by this key."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class ApiModel(BaseModel):
    """Base of all models: frozen, camelCase outside, unknown fields refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=_camel,
        populate_by_name=True,
        defer_build=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: Any, handler: GetJsonSchemaHandler, /
    ) -> JsonDict:
        """The schema, with the docstrings of the fields as their descriptions.

        Pydantic's ``use_attribute_docstrings`` would parse the sources whenever they are imported.
        """
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for model in reversed(cls.__mro__):
            if issubclass(model, ApiModel):
                for name, text in _docstrings_of_fields(model).items():
                    alias = cls.model_fields[name].alias or name
                    if handler.resolve_ref_schema(properties[alias]).get("description") != text:
                        properties[alias]["description"] = text
        return schema


def _docstrings_of_fields(model: type[ApiModel]) -> dict[str, str]:
    """The docstrings of the fields that the class itself defines, by name."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for statement, following in pairwise(definition.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                found[name] = inspect.cleandoc(text)
    return found
