"""The functions of Kubernetes' CEL environment, one library per file.

Importing this package registers them all; ``find`` looks them up.
"""

from kai_py.cel.functions import find
from kai_py.cel.library import (
    convert,
    formats,
    lists,
    network,
    operators,
    optionals,
    quantities,
    strings,
    textformat,
    times,
    urls,
    versions,
)

__all__ = [
    "convert",
    "find",
    "formats",
    "lists",
    "network",
    "operators",
    "optionals",
    "quantities",
    "strings",
    "textformat",
    "times",
    "urls",
    "versions",
]
