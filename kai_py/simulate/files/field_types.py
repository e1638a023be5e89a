"""Fields of another type than the API declares, as only files have that no API server has checked.

A simulation of all objects with their controllers has no use for a spec that is a list. What the
scheduler alone refuses (a Queue that contradicts itself, a quantity that is no number) may come
from a cluster and is left out later, object by object.
"""

import re
from collections.abc import Iterable, Iterator

from kai_py.embedded.object_validation import decoding_error
from kai_py.simulate.files.object_files import key_of
from kai_py.simulate.files.objects import Document

_OTHER_TYPE = re.compile("Expected `[^`]*`, got `")


def wrong_types(documents: Iterable[Document]) -> Iterator[str]:
    """A sentence for each object with such a field, which it names with its path."""
    for document in documents:
        group, _, version = document["apiVersion"].rpartition("/")
        # The definition of a custom resource may admit any type in spec and status.
        is_custom = "." in group and not group.endswith(".k8s.io")
        checked = {"metadata": document["metadata"]} if is_custom else document
        error = decoding_error(group, version, document["kind"], checked)
        if _OTHER_TYPE.match(error):
            yield f"{key_of(document)}: {error}"
