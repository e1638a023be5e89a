"""One scheduling cycle: from a snapshot to a plan."""

from kai_py.plan.actions.registry import ACTIONS
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.session.settings import CycleSettings

__all__ = ["ACTIONS", "CycleMemory", "CycleSettings", "run_cycle"]
