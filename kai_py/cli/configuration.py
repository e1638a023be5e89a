"""The configuration of a command: the file or the defaults, with options on top of it.

Errors are reported in lines that name the key. This module is apart from ``connection.py``, as
commands that read no cluster need no HTTP client, which takes long to import.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from kai_py.api.problems import field_problems
from kai_py.cli.errors import CommandError
from kai_py.config import Configuration, ConfigurationError, read_configuration

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
