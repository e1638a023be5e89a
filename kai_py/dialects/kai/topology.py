"""KAI's topology constraints in our terms: an alias of a level becomes its node label."""

from kai_py.api.records.kai import KaiTopology, KaiTopologyConstraint
from kai_py.grouping.gang import TopologyConstraint
from kai_py.grouping.owners import Owners

TOPOLOGIES = "topologies.kai.scheduler"


def constraint_of(
    written: KaiTopologyConstraint | None, owners: Owners
) -> TopologyConstraint | None:
    """The constraint, None where nothing is constrained.

    A level of a Topology that does not exist (yet) stays as written: the plan rejects the gang with
    the Topology's name, and the gang is derived again when it appears.
    """
    if written is None:
        return None
    required, preferred = written.required_topology_level, written.preferred_topology_level
    if not required and not preferred:
        return None
    found = owners.named(TOPOLOGIES, "", written.topology) if written.topology else None
    if isinstance(found, KaiTopology):
        required, preferred = found.label_of(required), found.label_of(preferred)
    return TopologyConstraint(written.topology, required, preferred)
