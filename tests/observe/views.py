"""Views of small worlds, as a scheduler would hand them to those who show them."""

import numpy as np

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.observe.cluster_view import ClusterView
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.state.cluster_totals import gpus_of_nodes


def view_of(snapshot, number=1):
    devices = ClusterDevices()
    plan = run_cycle(snapshot, CycleSettings(), CycleMemory(devices))
    published = devices.node_gpus(snapshot.nodes)
    gpus = gpus_of_nodes(snapshot, devices.accounting, published)
    return ClusterView(number, snapshot, plan, np.asarray(gpus))
