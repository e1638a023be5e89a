"""What makes a patch hold only for the object that it was made from?"""

from kai_py.watch.resource import Identified


def preconditions(known: Identified) -> dict[str, str]:
    """Metadata of a patch: the API server refuses it with a conflict once anything changed."""
    return {"uid": known.metadata.uid, "resourceVersion": known.metadata.resource_version}
