from kai_py.api.quantity import parse_quantity
from kai_py.embedded.nodes import RACK_LABEL, h100_slices
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


def test_mig_pools_are_complete_and_consistent(bare):
    slices = bare.create_all(h100_slices("n", gpus=2, mig=True))
    assert {each["spec"]["pool"]["resourceSliceCount"] for each in slices} == {len(slices)} == {3}
    counters = {
        counter_set["name"]: counter_set["counters"]
        for each in slices
        for counter_set in each["spec"].get("sharedCounters", ())
    }
    devices = [device for each in slices for device in each["spec"].get("devices", ())]
    assert (
        len({device["name"] for device in devices})
        == len(devices)
        == 2 * (1 + 7 + 4 + 3 + 2 + 1 + 1)
    )
    for device in devices:
        for consumed in device["consumesCounters"]:
            available = counters[consumed["counterSet"]]
            for name, amount in consumed["counters"].items():
                whole = parse_quantity(available[name]["value"]).nano
                assert 0 <= parse_quantity(amount["value"]).nano <= whole, (device["name"], name)


def test_each_placement_of_a_profile_takes_its_own_memory_slices():
    devices = h100_slices("n", gpus=1, mig=True)[1]["spec"]["devices"]
    small = [each for each in devices if "-1g10gb-" in each["name"]]
    taken = [
        name
        for each in small
        for name in each["consumesCounters"][0]["counters"]
        if name.startswith("memory-slice-")
    ]
    assert sorted(taken) == [f"memory-slice-{index}" for index in range(7)]
