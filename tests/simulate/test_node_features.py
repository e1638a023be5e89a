"""Features that kubelets declare: pods that require one go only where it is declared."""

import pytest

from tests.simulate.manifests import QUEUE, job, node, placed_on, plan, pod

RESTART_ALL = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]
RESTART_ONE = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
RESTART_FEATURE = "RestartAllContainersOnContainerExits"
NETWORK_FEATURE = "UserNamespacesHostNetworkSupport"
BOTH = [NETWORK_FEATURE, RESTART_FEATURE]


def restarting(rules, field="containers"):
    made = pod("a")
    container = {"name": "x", "restartPolicy": "Never", "restartPolicyRules": rules}
    made["spec"][field] = [container, *made["spec"].get(field, [])]
    return made


@pytest.mark.parametrize(
    ("asking", "required"),
    [
        (restarting(RESTART_ALL), [RESTART_FEATURE]),
        (restarting(RESTART_ALL, "initContainers"), [RESTART_FEATURE]),
        (restarting(RESTART_ONE), []),
        (pod("a", hostNetwork=True, hostUsers=False), [NETWORK_FEATURE]),
        (pod("a", hostNetwork=True, hostUsers=None), []),
        (pod("a", hostNetwork=True), []),
        (pod("a", hostUsers=False), []),
    ],
)
def test_a_pod_starts_where_the_features_that_it_requires_are_declared(asking, required):
    for declared in ([], [NETWORK_FEATURE], [RESTART_FEATURE], BOTH, ["Other"]):
        found = plan(node("n0", declaredFeatures=declared), QUEUE, asking)
        assert bool(found["placements"]) == set(required).issubset(declared)


def test_the_message_names_the_features():
    found = plan(node("n0"), node("n1", declaredFeatures=["Other"]), QUEUE, restarting(RESTART_ALL))
    [pending] = found["pending"]
    assert pending["stage"] == "NodeFilters"
    assert f"2 didn't match Pod's required features ({RESTART_FEATURE})" in pending["message"]


def test_a_job_that_requires_a_feature_takes_the_node_that_declares_it():
    plain = job("plain", 1)
    asking = job("asking", 1)
    asking["spec"]["template"]["spec"]["containers"][0]["restartPolicyRules"] = RESTART_ALL
    declaring = node("n1", gpus=1, declaredFeatures=[RESTART_FEATURE])
    found = plan(node("n0", gpus=1), declaring, QUEUE, plain, asking)
    nodes = {name.partition("-")[0]: each for name, each in placed_on(found).items()}
    assert nodes["default/asking"] == "n1"


def test_no_pod_is_evicted_for_a_feature_that_the_node_lacks():
    high = restarting(RESTART_ALL)
    high["spec"]["priority"] = 1000
    found = plan(node("n0"), QUEUE, pod("low", gpus=4, node="n0"), high)
    assert found["evictions"] == []
