"""The controllers that a cluster needs around a scheduler, each a reconcile function by key."""

from collections.abc import Sequence

from kai_py.embedded.controllers.claims import (
    CLAIM_CREATOR,
    CLAIM_RELEASER,
    EPHEMERAL_VOLUME_CONTROLLER,
)
from kai_py.embedded.controllers.deployments import DEPLOYMENT_CONTROLLER, REPLICA_SET_CONTROLLER
from kai_py.embedded.controllers.device_taints import DEVICE_TAINT_CONTROLLER
from kai_py.embedded.controllers.disruption import DISRUPTION_CONTROLLER
from kai_py.embedded.controllers.garbage import (
    GARBAGE_COLLECTOR,
    NAMESPACE_CONTROLLER,
    POD_GARBAGE_COLLECTOR,
)
from kai_py.embedded.controllers.jobs import ORPHANED_POD_CONTROLLER, JobController
from kai_py.embedded.controllers.runtime import Controller
from kai_py.embedded.controllers.stateful_sets import STATEFUL_SET_CONTROLLER


def standard_controllers() -> Sequence[Controller]:
    """The controllers of an embedded cluster, fresh for one cluster."""
    return (
        CLAIM_CREATOR,
        CLAIM_RELEASER,
        JobController().controller(),
        ORPHANED_POD_CONTROLLER,
        POD_GARBAGE_COLLECTOR,
        DEPLOYMENT_CONTROLLER,
        REPLICA_SET_CONTROLLER,
        STATEFUL_SET_CONTROLLER,
        EPHEMERAL_VOLUME_CONTROLLER,
        DISRUPTION_CONTROLLER,
        DEVICE_TAINT_CONTROLLER,
        GARBAGE_COLLECTOR,
        NAMESPACE_CONTROLLER,
    )
