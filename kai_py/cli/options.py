"""Groups of options that several commands take.

A group is a dataclass whose fields are declared as a command declares its parameters. A command
with ``takes_groups`` names the group as one parameter, at whose place ``--help`` lists the fields.

The configuration of a command: the file or the defaults, with options on top of it.

Errors are reported in lines that name the key. This module is apart from ``connection.py``, as
commands that read no cluster need no HTTP client, which takes long to import.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from kai_py.api.problems import field_problems
from kai_py.cli.errors import CommandError
from kai_py.config import Configuration, ConfigurationError, read_configuration

LATEST_TIME = 32_503_680_000.0
"""Seconds since 1970 until the year 3000: what is added to a time stays one of the calendar."""


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with each parameter that is a group replaced by the options of the group."""
    parameters = signature(command).parameters
    groups: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in parameters.items()
        if dataclasses.is_dataclass(parameter.annotation)
    }

    @wraps(command)
    def flat(*arguments: Any, **options: Any) -> None:
        for name, group in groups.items():
            given = {field.name for field in dataclasses.fields(group)} & options.keys()
            options[name] = group(**{option: options.pop(option) for option in given})
        command(*arguments, **options)

    # Typer reads a command's options from its signature.
    vars(flat)["__signature__"] = Signature(list(_flattened(parameters)))
    flat.__annotations__ = {}
    return flat


def _flattened(parameters: Mapping[str, Parameter]) -> Iterator[Parameter]:
    for parameter in parameters.values():
        if not dataclasses.is_dataclass(parameter.annotation):
            yield parameter
            continue
        for field in dataclasses.fields(parameter.annotation):
            required = field.default is dataclasses.MISSING
            yield Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if required else field.default,
                annotation=field.type,
            )


ConfigFile = Annotated[Path | None, typer.Option(help="The scheduler's configuration (YAML).")]


def configuration_from(path: Path | None) -> Configuration:
    """Read the configuration file, or use the defaults without one; raises CommandError."""
    try:
        return read_configuration(path) if path is not None else Configuration()
    except ConfigurationError as error:
        raise CommandError(str(error)) from error


def with_options(configuration: Configuration, options: Mapping[str, Any]) -> Configuration:
    """The configuration with some keys replaced, nested as in the file; None keeps a key."""
    document = _merged(configuration.model_dump(mode="json", by_alias=True), options)
    try:
        return Configuration.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = field_problems(error, Configuration)
        raise CommandError("; ".join(map(str, problems))) from error


def _merged(document: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(document)
    for key, value in options.items():
        if isinstance(value, Mapping):
            merged[key] = _merged(merged[key], value)
        elif value is not None:
            merged[key] = value
    return merged
