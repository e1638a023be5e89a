"""What becomes of gangs on nodes that are about to go, where their workloads do not say."""

from dataclasses import dataclass

from kai_py.api.node_departures import DepartureTreatment


@dataclass(frozen=True, slots=True)
class DepartureRules:
    """``treatment`` of gangs that declare none; ``checkpoint_grace`` in seconds.

    ``restart_whole``: whether gangs that need pods which were lost restart whole at once.
    """

    treatment: DepartureTreatment = DepartureTreatment.SHRINK
    checkpoint_grace: float = 60.0
    restart_whole: bool = True


DEFAULT_DEPARTURE_RULES = DepartureRules()
