from kai_py.embedded.nodes import RACK_LABEL
from kai_py.embedded.resources import DEVICE_CLASSES, NODES, SLICES
from tests.embedded.manifests import h100_cluster


def test_a_cluster_of_racks_is_accepted_by_the_server(bare):
    bare.create_all(h100_cluster(racks=2, nodes_per_rack=4))
    nodes = bare.api.list(NODES)
    racks = [node["metadata"]["labels"][RACK_LABEL] for node in nodes]
    assert racks == ["rack-0"] * 4 + ["rack-1"] * 4
    assert [each["metadata"]["name"] for each in bare.api.list(DEVICE_CLASSES)] == [
        "gpu.nvidia.com",
        "mig.nvidia.com",
    ]
    slices = bare.api.list(SLICES)
    assert {each["spec"]["nodeName"] for each in slices} == {n["metadata"]["name"] for n in nodes}
    assert {len(each["spec"]["devices"]) for each in slices} == {8}


def test_device_plugin_nodes_report_an_extended_resource(bare):
    bare.create_all(h100_cluster(racks=1, nodes_per_rack=1, device_plugin=True))
    assert bare.api.list(NODES)[0]["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert bare.api.list(SLICES) == []
