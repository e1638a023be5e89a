"""Recorded clusters in files: from KAI-Scheduler or from ``kai-py snapshot``.

KAI's is a zip (see ``kai_archive``); ours is a list of the objects that the scheduler watches, so
owners of pods are in it. Objects that cannot be read are left out and named.
"""

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from kai_py.cli.kai_archive import Archive, ArchiveError, read_archive
from kai_py.simulate.objects import Document, ObjectsError, load_objects
from kai_py.watch.kinds import WATCHED
from kai_py.watch.resource import Kind

BY_NAME: dict[tuple[str, str], Kind[Any]] = {(kind.group, kind.name): kind for kind in WATCHED}


def read_recorded(path: Path) -> Archive:
    """Read either kind of file; raises ArchiveError."""
    # A missing file too: the archive's reader reports it.
    if not path.is_file() or zipfile.is_zipfile(path):
        return read_archive(path)
    try:
        return archive_of(load_objects(path))
    except ObjectsError as error:
        text = f"is not a snapshot of KAI-Scheduler or kai-py: {error}"
        raise ArchiveError(f"{path} {text}") from error


def archive_of(documents: Iterable[Document]) -> Archive:
    """The objects of ``documents`` that the scheduler watches; no pod is being bound."""
    objects: list[tuple[Kind[Any], Any]] = []
    problems: list[str] = []
    for document in documents:
        group, _, version = str(document["apiVersion"]).rpartition("/")
        kind = BY_NAME.get((group, str(document["kind"])))
        if kind is None or version not in kind.versions:
            problems.append(
                f"{_name(document)} is ignored: {document['apiVersion']} is not supported"
            )
            continue
        try:
            objects.append((kind, kind.versions[version](msgspec.json.encode(document))))
        except ValueError as error:
            problems.append(f"{_name(document)} is ignored: {error}")
    return Archive("", tuple(objects), tuple(problems), {})


def _name(document: Document) -> str:
    meta = document["metadata"]
    return "/".join(filter(None, (document["kind"], meta.get("namespace", ""), meta["name"])))
