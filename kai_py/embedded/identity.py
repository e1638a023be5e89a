"""Uids and generated names, deterministic by a seed.

Hashes of the seed and a counter: they look random, and are the same in every run.
"""

from __future__ import annotations

import hashlib
import itertools
import uuid

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # what Kubernetes draws name suffixes from
_SUFFIX_LENGTH = 5


class Identity:
    """A stream of uids and name suffixes determined by `seed`."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._counter = itertools.count(1)

    def uid(self) -> str:
        """Return a new uid in the form of a version 4 UUID."""
        return str(uuid.UUID(bytes=self._digest()[:16], version=4))

    def suffix(self) -> str:
        """Return five letters for a generated name."""
        return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in self._digest()[:_SUFFIX_LENGTH])

    def _digest(self) -> bytes:
        return hashlib.sha256(f"{self._seed}/{next(self._counter)}".encode()).digest()


def short_hash(text: str) -> str:
    """Return a hash of `text` of ten letters, as in pod-template-hash."""
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:10])
