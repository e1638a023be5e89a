"""Annotations about parts of GPUs: what they mean, and what is said of those that mean nothing."""

import pytest

from kai_py.api.gpu_share import (
    GpuShare,
    GpuShareError,
    SharedGpu,
    gpu_share,
    legacy_mig_profile,
    shared_gpu_metadata,
    shared_gpus,
)
from kai_py.api.records.core import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements


def pod(annotations=None, labels=None, **requests):
    wanted = {name.replace("_", "/"): amount for name, amount in requests.items()}
    main = Container(name="main", resources=ResourceRequirements(requests=wanted))
    return Pod(
        metadata=ObjectMeta(name="p", annotations=annotations or {}, labels=labels or {}),
        spec=PodSpec(containers=(main,)),
    )


@pytest.mark.parametrize(
    ("annotations", "share"),
    [
        ({}, None),
        ({"gpu-fraction": "0.5"}, GpuShare(fraction=0.5)),
        ({"gpu-fraction": ".25"}, GpuShare(fraction=0.25)),
        ({"gpu-memory": "20000"}, GpuShare(memory=20000)),
        ({"gpu-memory": "20", "gpu-fraction-num-devices": "2"}, GpuShare(memory=20, devices=2)),
        (
            {"gpu-fraction": "0.5", "gpu-fraction-container-name": "main"},
            GpuShare(fraction=0.5),
        ),
    ],
)
def test_annotations_say_which_part(annotations, share):
    assert gpu_share(pod(annotations)) == share


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"gpu-fraction": "1"}, 'gpu-fraction: "1" must be a number above 0 and below 1'),
        ({"gpu-fraction": "0"}, 'gpu-fraction: "0" must be'),
        ({"gpu-fraction": "nan"}, 'gpu-fraction: "nan" must be'),
        ({"gpu-fraction": "-0.5"}, 'gpu-fraction: "-0.5" must be'),
        ({"gpu-fraction": "half"}, 'gpu-fraction: "half" must be'),
        ({"gpu-memory": "0"}, 'gpu-memory: "0" must be a number of MiB, 1 or more'),
        ({"gpu-memory": "2Gi"}, 'gpu-memory: "2Gi" must be a number of MiB'),
        ({"gpu-fraction": "0.5", "gpu-memory": "10"}, "are mutually exclusive"),
        ({"gpu-fraction-num-devices": "2"}, "needs gpu-fraction or gpu-memory as well"),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}, "a number of GPUs, 1 or more"),
        (
            {"gpu-fraction": "0.5", "gpu-fraction-container-name": "side"},
            '"side" is not one of the containers main',
        ),
    ],
)
def test_what_means_nothing_is_told(annotations, said):
    with pytest.raises(GpuShareError) as told:
        gpu_share(pod(annotations))
    assert said in str(told.value)


@pytest.mark.parametrize("resource", ["nvidia.com_gpu", "amd.com_gpu", "nvidia.com_mig-1g.5gb"])
def test_a_part_and_whole_gpus_exclude_each_other(resource):
    with pytest.raises(GpuShareError, match="are mutually exclusive"):
        gpu_share(pod({"gpu-fraction": "0.5"}, **{resource: "1"}))


def test_what_is_written_on_a_pod_is_read_again():
    for chosen in ((SharedGpu("a", 3),), (SharedGpu("b", 1), SharedGpu("a", 0))):
        labels, annotations = shared_gpu_metadata(chosen)
        assert shared_gpus(pod(annotations, labels)) == tuple(sorted(chosen))
    labels, _ = shared_gpu_metadata((SharedGpu("a", 3),))
    assert labels == {"runai-gpu-group": "a"}


def test_groups_written_by_others_have_no_index():
    labels = {"runai-gpu-group/x": "x", "runai-gpu-group/y": "y"}
    assert shared_gpus(pod(labels=labels)) == (SharedGpu("x"), SharedGpu("y"))


def test_a_legacy_mig_pod_names_what_it_does_not_request():
    named = {"nvidia.com/mig-1g.5gb": "1"}
    assert legacy_mig_profile(pod(named)) == "nvidia.com/mig-1g.5gb"
    assert not legacy_mig_profile(pod(named, **{"nvidia.com_mig-1g.5gb": "1"}))
    assert not legacy_mig_profile(pod())
