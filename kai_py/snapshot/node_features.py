"""Features of nodes that pods rely on (KEP-5328): kubelets declare those that they support.

A kubelet fails a pod that requires a feature which it does not declare.

Source: k8s.io/component-helpers nodedeclaredfeatures/features (``InferForScheduling``); features
that matter only when a pod is changed are not listed. Not read are those of fields that no record
has: ``bindMountOptions`` of volume mounts, and ``assigned.cpuset`` of the downward API.
"""

from kai_py.api.records.core import Pod

RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_ON_HOST_NETWORK = "UserNamespacesHostNetworkSupport"


def required_features(pod: Pod) -> tuple[str, ...]:
    """The features that nodes must declare to run a pod, sorted."""
    spec = pod.spec
    found = []
    if any(
        rule.action == "RestartAllContainers"
        for container in (*spec.containers, *spec.init_containers)
        for rule in container.restart_policy_rules
    ):
        found.append(RESTART_ALL_CONTAINERS)
    if spec.host_network and not spec.host_users:
        found.append(USER_NAMESPACES_ON_HOST_NETWORK)
    return tuple(found)
