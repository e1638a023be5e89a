"""Requests of pods as Kubernetes computes them."""

import pytest

from kai_py.api.records.core import Container, Pod, PodSpec, ResourceRequirements
from kai_py.snapshot.requests import excessive_request, pod_requests
from kai_py.snapshot.resources import largest_amount


def container(cpu="", sidecar=False, **limits):
    requests = {"cpu": cpu} if cpu else {}
    return Container(
        resources=ResourceRequirements(requests=requests, limits=limits),
        restart_policy="Always" if sidecar else "",
    )


def requests(**spec):
    return pod_requests(Pod(spec=PodSpec(**spec)))


def test_containers_add_up_and_every_pod_takes_a_slot():
    assert requests(containers=(container("1"), container("500m"))) == {"cpu": 1500, "pods": 1}


def test_a_limit_without_a_request_is_a_request():
    assert requests(containers=(container(memory="1Gi"),)) == {"memory": 2**30, "pods": 1}


def test_plain_init_containers_count_by_the_largest():
    spec = {"containers": (container("1"),), "init_containers": (container("3"), container("2"))}
    assert requests(**spec)["cpu"] == 3000


def test_sidecars_run_beside_what_starts_after_them():
    sidecar, start, main = container("1", sidecar=True), container("3"), container("1")
    assert requests(containers=(main,), init_containers=(sidecar, start))["cpu"] == 4000
    assert requests(containers=(main,), init_containers=(start, sidecar))["cpu"] == 3000
    assert requests(containers=(main,), init_containers=(sidecar, sidecar))["cpu"] == 3000


def test_pod_level_requests_replace_the_sum_and_overhead_comes_on_top():
    found = requests(
        containers=(container("1"),),
        resources=ResourceRequirements(requests={"cpu": "8"}),
        overhead={"cpu": "250m"},
    )
    assert found["cpu"] == 8250


@pytest.mark.parametrize("text", ["9223372036854775807", "1e19", "1e30", "100E", "1e1000000000"])
@pytest.mark.parametrize("name", ["cpu", "memory", "nvidia.com/gpu", "example.com/vram"])
def test_an_absurd_amount_counts_as_the_ceiling(name, text):
    wanted = requests(
        containers=(Container(resources=ResourceRequirements(requests={name: text})),)
    )
    assert wanted[name] == largest_amount(name)
    assert name in excessive_request(wanted)


def test_the_ceiling_holds_for_the_sum_of_containers():
    gpus = container(**{"nvidia.com/gpu": str(2**31 - 1)})
    assert requests(containers=(gpus,) * 1000)["nvidia.com/gpu"] == 2**31 - 1


@pytest.mark.parametrize("name", ["cpu", "memory", "nvidia.com/gpu", "pods"])
def test_pods_of_a_node_do_not_lose_their_amounts_to_an_absurd_one(name):
    """Amounts are added and taken away in float64."""
    held = 4 * (1000 if name == "cpu" else 1)
    absurd = [largest_amount(name)] * 100
    total = float(held)
    for amount in absurd:
        total += amount
    for amount in absurd:
        total -= amount
    assert total == held if name != "memory" else abs(total - held) < 64
