"""What of a pod kubelets align, by its QoS class."""

from kai_py.api.records.core import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from kai_py.snapshot.numa_alignment import OBSERVED_ZONES_KEY, alignment, observed_zones

GPU = "nvidia.com/gpu"
ALL = {"cpu": "2", "memory": "1Gi"}


def container(limits, requests=None, *, sidecar=False):
    asked = ResourceRequirements(limits=limits, requests=limits if requests is None else requests)
    return Container(resources=asked, restart_policy="Always" if sidecar else "")


def aligned(*containers, init=(), **spec):
    found = alignment(Pod(spec=PodSpec(containers=containers, init_containers=init, **spec)))
    return found and found.pod


def test_whole_cpus_and_memory_of_guaranteed_pods_are_aligned():
    assert aligned(container(ALL)) == {"cpu": 2000, "memory": 2**30}
    assert aligned(container({"cpu": "1500m", "memory": "1Gi"})) == {"memory": 2**30}


def test_of_others_only_devices_are():
    assert aligned(container(ALL, {"cpu": "1"})) is None
    assert aligned(container({GPU: "1"}, {"cpu": "1", GPU: "1"})) == {GPU: 1}
    assert aligned(container(ALL), container({})) is None


def test_one_container_that_is_not_guaranteed_makes_the_pod_burstable():
    assert aligned(container(ALL), init=(container({"cpu": "1"}),)) is None


def test_init_containers_count_alone_and_sidecars_beside_the_others():
    big, side = container({"cpu": "5", "memory": "1Gi"}), container(ALL, sidecar=True)
    assert aligned(container(ALL), init=(big,))["cpu"] == 5000
    assert aligned(container(ALL), init=(side,))["cpu"] == 4000
    found = alignment(Pod(spec=PodSpec(containers=(container(ALL),), init_containers=(big, side))))
    assert [each["cpu"] for each in found.starting] == [5000]
    assert [each["cpu"] for each in found.running] == [2000, 2000]


def test_what_a_node_says_of_zones_is_read_and_nonsense_is_not():
    def seen(text):
        return observed_zones(Pod(metadata=ObjectMeta(annotations={OBSERVED_ZONES_KEY: text})))

    assert seen('[{"zone": "node-1", "amount": {"cpu": "3"}}]') == (("node-1", {"cpu": 3000}),)
    assert seen('[{"zone": "node-1", "amount": {"cpu": "many"}}]') == ()
    assert seen("zone-1") == observed_zones(Pod()) == ()


def test_resources_of_a_pod_as_a_whole_are_not_aligned():
    assert aligned(container(ALL), resources=ResourceRequirements(limits=ALL, requests=ALL)) is None
