"""Groups of options that several commands take.

A group is a Struct whose fields are declared as a command declares its parameters. A command
with ``takes_groups`` names the group as one parameter, at whose place ``--help`` lists the fields.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

from msgspec import Struct

LATEST_TIME = 32_503_680_000.0
"""Seconds since 1970 until the year 3000: what is added to a time stays one of the calendar."""


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with each parameter that is a group replaced by the options of the group."""
    parameters = signature(command).parameters
    groups: dict[str, Any] = {
        name: parameter.annotation for name, parameter in parameters.items() if _is_group(parameter)
    }

    @wraps(command)
    def flat(*arguments: Any, **options: Any) -> None:
        for name, group in groups.items():
            given = set(group.__struct_fields__) & options.keys()
            options[name] = group(**{option: options.pop(option) for option in given})
        command(*arguments, **options)

    # Typer reads a command's options from its signature.
    vars(flat)["__signature__"] = Signature(list(_flattened(parameters)))
    flat.__annotations__ = {}
    return flat


def _flattened(parameters: Mapping[str, Parameter]) -> Iterator[Parameter]:
    for parameter in parameters.values():
        if not _is_group(parameter):
            yield parameter
            continue
        for option in signature(parameter.annotation).parameters.values():
            yield option.replace(kind=Parameter.KEYWORD_ONLY)


def _is_group(parameter: Parameter) -> bool:
    return isinstance(parameter.annotation, type) and issubclass(parameter.annotation, Struct)
