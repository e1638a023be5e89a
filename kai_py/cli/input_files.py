"""Files as arguments of commands: their text, their YAML documents, the files below a directory.

The file ``-`` is standard input. Nothing here imports clients of clusters or the scheduler, so
that checking files starts fast.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from kai_py.api import manifests
from kai_py.api.manifests import ManifestError, read_documents
from kai_py.cli.errors import CommandError
from kai_py.simulate.files.object_files import (
    ObjectsInFiles,
    as_utf8,
    files_below,
    read_object_files,
)
from kai_py.simulate.files.objects import read_stream


def name_of(file: str) -> str:
    """The file's name in messages."""
    return "stdin" if file == "-" else file


MAX_BYTES = 256 * 1024 * 1024
"""The largest file that is read as text."""


def standard_input() -> BinaryIO:
    """Standard input as bytes; raises CommandError if the command was started without one."""
    if sys.stdin is None:
        raise CommandError("stdin: is closed")
    return sys.stdin.buffer


def read_objects(files: Iterable[Path]) -> ObjectsInFiles:
    """The objects of files, directories and standard input; raises CommandError, also for none."""
    files = list(files)
    try:
        found = read_object_files(files, lambda: read_stream(standard_input()))
    except OSError as error:
        raise CommandError(f"{error.filename or 'stdin'}: {error.strerror}") from None
    if not found.documents and not found.rejected:
        names = ", ".join(name_of(str(file)) for file in files)
        raise CommandError(f"{names}: there are no Kubernetes objects")
    return found


def read_limited(file: str) -> bytes:
    """The content of the file; raises OSError, CommandError if it is enormous."""
    if file == "-":
        raw = standard_input().read(MAX_BYTES + 1)
    else:
        with Path(file).open("rb") as opened:
            raw = opened.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise CommandError(f"{name_of(file)}: is larger than {MAX_BYTES >> 20} MiB")
    return raw


def text_of(file: str) -> str:
    """The content of the file; raises CommandError if it cannot be read or is not UTF-8."""
    try:
        return as_utf8(read_limited(file)).decode().replace("\r\n", "\n")
    except OSError as error:
        raise CommandError(f"{name_of(file)}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name_of(file)}: is not UTF-8 text") from error


def paths_of(names: Iterable[str]) -> list[Path]:
    """The paths; raises CommandError for an empty name, which would be the working directory."""
    if not all(names := list(names)):
        raise CommandError("the name of a FILE is empty; the working directory is named .")
    return list(map(Path, names))


def files_in(names: Iterable[str]) -> list[str]:
    """The files, a directory standing for those below it; raises CommandError if it has none."""
    found: list[str] = []
    for name in paths_of(names):
        files = [str(path) for path in files_below([name])]
        if not files:
            raise CommandError(f"{name}: has no YAML or JSON files")
        found += files
    return found


def documents_in(file: str) -> list[manifests.Document]:
    """The YAML documents of the file; raises CommandError that names the line."""
    try:
        documents = read_documents(text_of(file))
    except ManifestError as error:
        raise CommandError(f"{name_of(file)}:{error.line}: {error.reason}") from error
    for line, key in (repeated for each in documents for repeated in each.repeated_keys):
        raise CommandError(f"{name_of(file)}:{line}: {key} is set twice in one mapping")
    return documents
