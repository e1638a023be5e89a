"""The functions of Kubernetes' CEL environment, one library per file.

Importing this package registers them all.
"""

from kai_py.dra.cel.library import (  # noqa: F401
    convert,
    lists,
    network,
    operators,
    optionals,
    quantities,
    regex,
    strings,
    textformat,
    times,
    versions,
)
