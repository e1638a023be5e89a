"""A real Kubernetes control plane on loopback, for tests and benchmarks.

with control_plane(directory, feature_gates={"GenericWorkload": True}) as cluster:
    subprocess.run([cluster.kubectl, "get", "nodes"])
    with cluster.kube_scheduler():
        ...
"""

from tests.cluster.controlplane.binaries import BuildError, binaries
from tests.cluster.controlplane.processes import Process, StartError
from tests.cluster.controlplane.server import ControlPlane, control_plane

__all__ = ["BuildError", "ControlPlane", "Process", "StartError", "binaries", "control_plane"]
