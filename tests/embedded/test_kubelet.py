import pytest

from kai_py.api.gpu_reservation import GpuGroup, ReservationTemplate, reservation_pod
from kai_py.api.gpu_share import RESERVATION
from kai_py.embedded.deletion import delete
from kai_py.embedded.kubelet import EXIT_CODE, RUN_SECONDS
from kai_py.embedded.node_admission import NodeAdmission, requests_of
from kai_py.embedded.resources import CLAIMS, EVENTS, PODS
from tests.embedded.manifests import claim, job, node, pod
from tests.embedded.placing import allocate, bind_all, names, phases

NANO = 10**9


@pytest.fixture
def busy(cluster):
    cluster.create(node("n", **{"nvidia.com/gpu": "2"}))
    return cluster


def container(**requests):
    resources = {"requests": requests, "limits": requests}
    return {"name": "main", "image": "busybox:1", "resources": resources}


def the_pod(cluster):
    return cluster.api.list(PODS)[0]


def test_a_bound_pod_starts_and_runs_until_it_is_deleted(busy):
    busy.create(pod("a"))
    busy.clock.advance(10)
    assert phases(busy) == ["Pending"]
    bind_all(busy)
    busy.clock.advance(0.9)
    assert phases(busy) == ["Pending"]
    busy.clock.advance(0.2)
    assert phases(busy) == ["Running"]
    conditions = {each["type"]: each["status"] for each in the_pod(busy)["status"]["conditions"]}
    assert conditions["Ready"] == conditions["PodScheduled"] == "True"
    busy.clock.advance(10_000)
    assert phases(busy) == ["Running"]
    delete(busy.api, PODS, "a", "default")
    busy.clock.advance(0.5)
    assert names(busy, PODS) == ["a"]
    busy.clock.advance(1)
    assert names(busy, PODS) == []


def test_a_pod_deleted_before_it_started_fails_so_that_its_job_lets_it_go(busy):
    busy.create(job("train", parallelism=1, completions=1, podReplacementPolicy="Failed"))
    busy.clock.advance(1)
    bind_all(busy)
    (first,) = names(busy, PODS)
    busy.clock.advance(0.5)
    assert phases(busy) == ["Pending"]
    delete(busy.api, PODS, first, "default")
    busy.clock.advance(3)
    assert first not in names(busy, PODS)


@pytest.mark.parametrize(("code", "phase"), [("0", "Succeeded"), ("3", "Failed")])
def test_a_pod_ends_after_its_run_time(busy, code, phase):
    annotations = {RUN_SECONDS: "5", EXIT_CODE: code}
    busy.create(pod("a", restartPolicy="Never", annotations=annotations))
    bind_all(busy)
    busy.clock.advance(5.9)
    assert phases(busy) == ["Running"]
    busy.clock.advance(0.2)
    assert phases(busy) == [phase]
    terminated = the_pod(busy)["status"]["containerStatuses"][0]["state"]["terminated"]
    assert terminated["exitCode"] == int(code)


def test_what_is_always_restarted_runs_again(busy):
    busy.create(pod("a", annotations={RUN_SECONDS: "5"}))
    bind_all(busy)
    busy.clock.advance(12)
    assert phases(busy) == ["Running"]
    assert the_pod(busy)["status"]["containerStatuses"][0]["restartCount"] == 2


def test_more_than_the_node_has_is_refused(busy):
    for name in ("a", "b", "c"):
        busy.create(pod(name, containers=[container(**{"nvidia.com/gpu": "1"})]))
    bind_all(busy)
    busy.clock.advance(3)
    assert phases(busy) == ["Running", "Running", "Failed"]
    status = busy.api.get(PODS, "c", "default")["status"]
    assert status["reason"] == "OutOfnvidia.com/gpu"


def test_a_stopped_pod_frees_its_capacity(busy):
    gpus = [container(**{"nvidia.com/gpu": "2"})]
    busy.create(pod("a", containers=gpus, restartPolicy="Never", annotations={RUN_SECONDS: "1"}))
    bind_all(busy)
    busy.clock.advance(5)
    busy.create(pod("b", containers=gpus))
    bind_all(busy)
    busy.clock.advance(5)
    assert phases(busy) == ["Succeeded", "Running"]
    delete(busy.api, PODS, "b", "default")
    busy.clock.advance(2)
    busy.create(pod("c", containers=gpus))
    bind_all(busy)
    busy.clock.advance(5)
    assert phases(busy) == ["Succeeded", "Running"]


def test_a_node_is_forgotten_with_its_last_pod():
    admission = NodeAdmission()
    gpus = {"nvidia.com/gpu": "1"}
    stored = node("n") | {"status": {"allocatable": gpus}}
    for name in ("a", "b"):
        meta = {"name": name, "namespace": "default", "uid": name}
        spec = {"containers": [{"name": "main", "resources": {"requests": gpus}}]}
        started = not admission.admit_resources({"metadata": meta, "spec": spec}, stored)
        assert started == (name == "a")
    admission.release("b", "n")
    assert admission.plugin_gpus("a", "n") == ("GPU-n-0",)
    admission.release("a", "n")
    assert not any(vars(admission).values())


def test_a_resource_the_node_does_not_know_is_not_checked(busy):
    busy.create(pod("a", containers=[container(**{"example.com/fpga": "1"})]))
    bind_all(busy)
    busy.clock.advance(3)
    assert phases(busy) == ["Running"]


def with_claim(name, claim_name):
    return pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": claim_name}])


def test_a_pod_waits_for_a_claim_that_is_reserved_for_it(busy):
    busy.create(claim("c"))
    user, other = busy.create(with_claim("a", "c")), busy.create(pod("other"))
    bind_all(busy)
    busy.clock.advance(3)
    assert phases(busy) == ["Pending", "Running"]
    assert busy.api.list(EVENTS)[0]["reason"] == "FailedPrepareDynamicResources"
    allocate(busy, "c", [other], "gpu-0")
    busy.clock.advance(3)
    assert phases(busy) == ["Pending", "Running"]
    status = {"reservedFor": [*busy.api.get(CLAIMS, "c", "default")["status"]["reservedFor"]]}
    status["reservedFor"].append({"resource": "pods", "name": "a", "uid": user["metadata"]["uid"]})
    busy.api.patch_status(CLAIMS, busy.api.get(CLAIMS, "c", "default"), status)
    busy.clock.advance(3)
    assert phases(busy) == ["Running", "Running"]


def test_a_device_is_never_given_to_two_claims_at_once(busy):
    for name in ("c1", "c2"):
        busy.create(claim(name))
    first, second = busy.create(with_claim("a", "c1")), busy.create(with_claim("b", "c2"))
    allocate(busy, "c1", [first], "gpu-0")
    allocate(busy, "c2", [second], "gpu-0")
    bind_all(busy)
    busy.clock.advance(3)
    assert phases(busy) == ["Running", "Pending"]
    event = next(each for each in busy.api.list(EVENTS) if each["involvedObject"]["name"] == "b")
    assert "gpu-0" in event["message"]
    delete(busy.api, PODS, "a", "default")
    busy.clock.advance(10)
    assert phases(busy) == ["Running"]


def test_two_pods_may_share_one_claim(busy):
    busy.create(claim("c"))
    users = [busy.create(with_claim(name, "c")) for name in ("a", "b")]
    allocate(busy, "c", users, "gpu-0")
    bind_all(busy)
    busy.clock.advance(3)
    assert phases(busy) == ["Running", "Running"]


def test_effective_requests():
    def part(cpu, **more):
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "initContainers": [part("1", restartPolicy="Always"), part("6")],
        "containers": [part("2"), part("3")],
        "overhead": {"cpu": "500m"},
    }
    amounts = requests_of({"spec": spec})
    assert amounts["cpu"] == 7.5 * NANO
    assert amounts["pods"] == NANO
    spec["resources"] = {"requests": {"cpu": "4"}}
    assert requests_of({"spec": spec})["cpu"] == 4.5 * NANO


def test_a_reservation_pod_tells_the_first_gpu_that_is_free(busy):
    busy.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RESERVATION}})
    busy.create(pod("whole", containers=[container(**{"nvidia.com/gpu": "1"})]))
    bind_all(busy)
    busy.clock.advance(2)
    gpu = GpuGroup("n", "g")
    made = reservation_pod(gpu, ReservationTemplate(image="kai-py"))
    made["metadata"]["namespace"] = RESERVATION
    busy.create({"apiVersion": "v1", "kind": "Pod", **made})
    busy.clock.advance(2)
    found = busy.api.get(PODS, gpu.reservation, RESERVATION)
    assert found["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] == "GPU-n-1"
