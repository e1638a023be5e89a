"""What the controllers around the scheduler do."""

from tests.cluster.conformance.place import Json, Place, claim, config_map
from tests.support.cluster.eventually import eventually


async def test_dependents_go_with_their_owner(place: Place):
    api = place.api
    owner = await api.post(place.maps, config_map("owner"))
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    await api.post(place.maps, config_map("child", ownerReferences=[reference]))
    await api.delete(f"{place.maps}/owner")

    async def gone() -> bool:
        names = [each["metadata"]["name"] for each in await api.items(place.maps)]
        return "child" not in names

    await eventually(gone, within=30, what="no dependents")


async def test_a_job_gets_pods_and_they_get_claims(place: Place):
    api = place.api
    template = {"metadata": {"name": "t"}, "spec": {"spec": claim("c")["spec"]}}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    await api.create({**kind, **template}, namespace=place.namespace)
    pod_spec = {
        "restartPolicy": "Never",
        "schedulerName": "no-scheduler",
        "containers": [{"name": "main", "image": "busybox:1"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
    }
    spec = {
        "parallelism": 2,
        "completions": 2,
        "completionMode": "Indexed",
        "template": {"spec": pod_spec},
    }
    kind = {"apiVersion": "batch/v1", "kind": "Job"}
    job = await api.post(place.jobs, {**kind, "metadata": {"name": "j"}, "spec": spec})

    async def claimed() -> list[Json]:
        pods = await api.items(place.pods)
        return (
            pods
            if len(pods) == 2 and all(p["status"].get("resourceClaimStatuses") for p in pods)
            else []
        )

    pods = await eventually(claimed, what="two pods with claims")
    index = "batch.kubernetes.io/job-completion-index"
    assert sorted(each["metadata"]["annotations"][index] for each in pods) == ["0", "1"]
    for each in pods:
        assert each["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        assert each["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"
        name = each["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        made = await api.get(f"{place.claims}/{name}")
        assert made["metadata"]["ownerReferences"][0]["uid"] == each["metadata"]["uid"]
        assert made["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"] == "gpu"
    await api.delete(f"{place.jobs}/j", {"propagationPolicy": "Background"})

    async def empty() -> bool:
        return not await api.items(place.pods) and not await api.items(place.claims)

    await eventually(empty, within=30, what="no pods and claims")


async def test_suspending_a_job_takes_its_pods_back_without_failing_them(place: Place):
    api = place.api
    pod_spec = {
        "restartPolicy": "Never",
        "schedulerName": "no-scheduler",
        "containers": [{"name": "main", "image": "busybox:1"}],
    }
    kind = {"apiVersion": "batch/v1", "kind": "Job"}
    spec = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": {"spec": pod_spec}}
    await api.post(place.jobs, {**kind, "metadata": {"name": "j"}, "spec": spec})

    async def pods(count: int) -> bool:
        return len(await api.items(place.pods)) == count

    for round_ in range(2):
        await eventually(lambda: pods(2), what=f"two pods in round {round_}")
        await api.patch(f"{place.jobs}/j", {"spec": {"suspend": True}})
        await eventually(lambda: pods(0), what="no pods")

        async def suspended() -> bool:
            status = (await api.get(f"{place.jobs}/j"))["status"]
            conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
            return conditions.get("Suspended") == "True" and not status.get("active")

        await eventually(suspended, what="suspension")
        status = (await api.get(f"{place.jobs}/j"))["status"]
        assert not status.get("failed")
        await api.patch(f"{place.jobs}/j", {"spec": {"suspend": False}})
