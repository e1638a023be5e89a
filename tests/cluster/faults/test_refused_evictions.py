"""An admission policy refuses evictions: other victims are found, and a refusal is no eviction."""

import asyncio

from kai_py.plan.state.eviction_limits import REFUSED
from tests.cluster.fake_kubelet import gpu_nodes
from tests.cluster.queues.test_preemption import HIGH, LOW, prioritised
from tests.support.cluster.api import ApiError
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import claim_template, pod, pod_spec, queue
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.view import View

EVICTIONS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods/eviction"],
}
POLICY = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "keep"},
    "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [EVICTIONS]},
        "validations": [
            {"expression": "!object.metadata.name.startsWith('kept')", "message": "it is kept"}
        ],
    },
}
BINDING = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "keep"},
    "spec": {"policyName": "keep", "validationActions": ["Deny"]},
}
BINDING_PATH = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/keep"
PROBE = "keptprobe"
DRY_RUN_EVICTION = {
    "apiVersion": "policy/v1",
    "kind": "Eviction",
    "metadata": {"name": PROBE},
    "deleteOptions": {"dryRun": ["All"]},
}


async def keep(cluster: Cluster, view: View) -> None:
    """Create the policy; return once it refuses: the server reads its policies now and then."""
    path = f"{view.path('pods')}/{PROBE}"
    await cluster.submit(POLICY, BINDING, pod(PROBE, pod_spec(scheduler="none")))

    async def refused() -> bool:
        try:
            await cluster.api.post(f"{path}/eviction", DRY_RUN_EVICTION)
        except ApiError as error:
            return "it is kept" in str(error)
        return False

    await eventually(refused, what="a policy in force", within=30)
    await cluster.api.delete(path)


async def test_a_gang_waits_while_its_victims_may_not_be_evicted_and_not_longer(real: Cluster):
    await install_definitions(real.api)
    view = View(real.api)
    async with real.run_nodes(gpu_nodes(1, published_gpus=8)), scheduling(real):
        await keep(real, view)
        await real.submit(queue(), LOW, HIGH, claim_template())
        await real.submit(prioritised("kept", 8, "low"))
        before = await view.wait_bound("kept", 8)
        await real.submit(prioritised("high", 8, "high"))

        async def told() -> bool:
            return any(REFUSED in each for each in await view.say("high"))

        await eventually(told, what="pods that say why they wait", within=30)
        assert await view.bound("kept") == before
        # As often refused as a gang may be evicted in a day.
        await asyncio.sleep(4)
        await real.api.delete(BINDING_PATH)
        await view.wait_bound("high", 8, within=90)


async def test_other_victims_leave_in_place_of_those_that_may_not(real: Cluster):
    await install_definitions(real.api)
    view = View(real.api)
    async with real.run_nodes(gpu_nodes(2, published_gpus=8)), scheduling(real):
        await keep(real, view)
        await real.submit(queue(), LOW, HIGH, claim_template())
        await real.submit(prioritised("other", 8, "low"))
        await view.wait_bound("other", 8)
        # It has lost less when it is evicted.
        await real.submit(prioritised("kept", 8, "low"))
        kept = await view.wait_bound("kept", 8)
        await real.submit(prioritised("high", 8, "high"))
        await view.wait_bound("high", 8, within=30)
        assert await view.bound("kept") == kept
