"""Input files of commands; ``-`` is standard input."""

import sys
from pathlib import Path

from kai_py.api.manifests import Document, ManifestError, read_documents
from kai_py.cli.errors import CommandError


def name_of(file: str) -> str:
    """The file's name in messages."""
    return "stdin" if file == "-" else file


def text_of(file: str) -> str:
    """The content of the file; raises CommandError if it cannot be read or is not UTF-8."""
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name_of(file)}: is not UTF-8 text") from error


def documents_in(file: str) -> list[Document]:
    """The YAML documents of the file; raises CommandError that names the line."""
    try:
        return read_documents(text_of(file))
    except ManifestError as error:
        raise CommandError(f"{name_of(file)}:{error.line}: {error.reason}") from error
