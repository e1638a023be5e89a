"""Claims that pods may share: whose they are under KAI's rules, and how many may share one."""

from tests.dialects.feeding import Cluster, placed, pod

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n0"},
    "status": {
        "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "300"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
QUEUE = {
    "apiVersion": "scheduling.run.ai/v2",
    "kind": "Queue",
    "metadata": {"name": "team"},
    "spec": {"resources": {kind: {"quota": -1, "limit": -1} for kind in ("gpu", "cpu", "memory")}},
}


def resource(kind, name, spec, **metadata):
    namespace = {"namespace": "default"} if kind == "ResourceClaim" else {}
    meta = {"name": name, **namespace, **metadata}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": meta, "spec": spec}


def devices(driver):
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    shared = {"driver": driver, "pool": pool, "nodeName": "n0", "devices": [{"name": "d0"}]}
    return [
        resource("DeviceClass", driver, {"selectors": [selector]}),
        resource("ResourceSlice", f"n0-{driver}", shared),
    ]


def claim(driver="gpu.nvidia.com", *, users=0, **metadata):
    exactly = {"deviceClassName": driver, "count": 1}
    made = resource("ResourceClaim", "shared", {}, **metadata)
    made["spec"] = {"devices": {"requests": [{"name": "device", "exactly": exactly}]}}
    names = [f"user-{number}" for number in range(users)]
    made["status"] = {"reservedFor": [{"resource": "pods", "name": n, "uid": n} for n in names]}
    return made


def world(wanted, driver="gpu.nvidia.com", rules="kai"):
    uses = [{"name": "device", "resourceClaimName": "shared"}]
    user = pod("user", 0, labels={"kai.scheduler/queue": "team"}, resourceClaims=uses)
    return Cluster([NODE, QUEUE, *devices(driver), wanted, user], rules=rules)


def test_a_claim_for_gpus_names_the_queue_that_it_belongs_to():
    assert placed(world(claim(labels={"kai.scheduler/queue": "team"})).plan()) == {"user": "n0"}
    for labels in ({}, {"kai.scheduler/queue": "other"}):
        ((_, sentence),) = world(claim(labels=labels)).why().values()
        assert 'its label kai.scheduler/queue must name queue "team"' in sentence


def test_other_devices_other_rules_and_claims_of_one_pod_need_no_mark():
    assert placed(world(claim("nic.example.com"), "nic.example.com").plan())
    assert placed(world(claim(), rules="native").plan())
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "user", "uid": "u", "controller": True}
    assert placed(world(claim(ownerReferences=[owner])).plan())


def test_the_api_takes_256_users_of_a_claim():
    assert placed(world(claim(users=255), rules="native").plan())
    ((_, sentence),) = world(claim(users=256), rules="native").why().values()
    assert 'resourceclaim "shared" is reserved for 256 pods already, the maximum' in sentence


def gang(name, pods, minimum=None, **changes):
    """A Job whose pods all use the claim ``shared``."""
    minimum = pods if minimum is None else minimum
    annotations = {
        "scheduling.kai.io/queue-name": "team",
        "scheduling.kai.io/pod-group": name,
        "scheduling.kai.io/min-available": str(minimum),
    }
    uses = [{"name": "device", "resourceClaimName": "shared"}]
    return [
        pod(f"{name}-{n}", 0, annotations=annotations, resourceClaims=uses, **changes)
        for n in range(pods)
    ]


def users_of(wanted, *gangs):
    wide = {**NODE, "status": {**NODE["status"], "allocatable": {"cpu": "900", "pods": "900"}}}
    return Cluster([wide, QUEUE, *devices("gpu.nvidia.com"), wanted, *gangs], rules="native")


def test_the_other_members_of_a_gang_count_as_users():
    assert len(placed(users_of(claim(users=254), *gang("a", 2)).plan())) == 2
    cluster = users_of(claim(users=254), *gang("a", 3))
    assert placed(cluster.plan()) == {}
    ((stage, sentence),) = cluster.why().values()
    assert stage == "Devices"
    assert 'resourceclaim "shared" would be reserved for 257 pods, 256 are allowed' in sentence


def test_what_the_cycle_has_placed_counts():
    cluster = users_of(claim(users=252), *gang("a", 3), *gang("b", 3), *gang("c", 1))
    assert {name[0] for name in placed(cluster.plan())} == {"a", "c"}


def test_users_that_are_not_listed_yet_count():
    bound = gang("a", 200, nodeName="n0")
    assert placed(users_of(claim(), *bound, *gang("b", 57)).plan()) == {}
    assert len(placed(users_of(claim(), *bound, *gang("b", 56)).plan())) == 56
    listed = claim()
    listed["status"]["reservedFor"] = [
        {"resource": "pods", "name": f"a-{n}", "uid": f"uid-Pod-a-{n}"} for n in range(200)
    ]
    assert len(placed(users_of(listed, *bound, *gang("b", 56)).plan())) == 56


def test_an_elastic_gang_grows_to_the_maximum():
    cluster = users_of(claim(users=250), *gang("a", 20, minimum=2))
    assert len(placed(cluster.plan())) == 6
