"""How do commands take ``--config``? The file, or every default; mistakes are told in one line."""

from pathlib import Path

from kai_py.cli.errors import CommandError
from kai_py.config import Configuration, ConfigurationError, read_configuration


def configuration_from(path: Path | None) -> Configuration:
    """Read the configuration file, where one is named."""
    try:
        return read_configuration(path) if path is not None else Configuration()
    except ConfigurationError as error:
        raise CommandError(str(error)) from error
