"""Volume claims in files that the controller of volumes binds, before any pod is placed."""

import pytest

from tests.simulate.manifests import QUEUE, node, placed_on, plan, pod
from tests.simulate.test_offline_volumes import stateful_set, storage_class, using, volume_claim

NO_PROVISIONER = {"provisioner": "kubernetes.io/no-provisioner"}


def at_once(name="standard", **fields):
    """A class that binds immediately, the default one."""
    return storage_class(name, True) | {"volumeBindingMode": "Immediate"} | fields


def volume(name, size="1Gi", zone="", **spec):
    affinity = {
        "required": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
            ]
        }
    }
    given = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"]}
    given |= {"storageClassName": "manual"} | ({"nodeAffinity": affinity} if zone else {})
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": given | spec,
    }


def zones():
    nodes = [node("n0"), node("n1")]
    for each, zone in zip(nodes, "ab", strict=True):
        each["metadata"]["labels"] = {"zone": zone}
    return nodes


def placed(*objects):
    return placed_on(plan(*zones(), QUEUE, *objects))


@pytest.mark.parametrize("mode", ["Immediate", None])
def test_a_class_that_binds_at_once_makes_a_volume(mode):
    storage = at_once(volumeBindingMode=mode)
    assert "default/a" in placed(storage, volume_claim("data"), using("a", "data"))
    assert len(placed(storage, stateful_set())) == 2


def test_a_volume_that_is_made_is_in_an_allowed_topology():
    allowed = [{"matchLabelExpressions": [{"key": "zone", "values": ["b"]}]}]
    storage = at_once(allowedTopologies=allowed)
    assert placed(storage, volume_claim("data"), using("a", "data")) == {"default/a": "n1"}


def test_a_class_without_a_provisioner_makes_none():
    claim = volume_claim("data")
    assert placed(at_once() | NO_PROVISIONER, claim, using("a", "data")) == {}
    assert placed(claim, using("a", "data")) == {}


@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        ({}, True),
        ({"size": "512Mi"}, False),
        ({"size": "odd"}, False),
        ({"accessModes": ["ReadOnlyMany"]}, False),
        ({"accessModes": ["ReadOnlyMany", "ReadWriteOnce"]}, True),
        ({"volumeMode": "Block"}, False),
        ({"storageClassName": "other"}, False),
        ({"claimRef": {"namespace": "default", "name": "other"}}, False),
        ({"claimRef": {"namespace": "default", "name": "data"}}, True),
        ({"claimRef": {"namespace": "default", "name": "data", "uid": "former"}}, False),
        ({"claimRef": {"namespace": "default", "name": "data"}, "storageClassName": "x"}, True),
    ],
)
def test_a_claim_gets_a_volume_of_its_class_that_satisfies_it(fields, bound):
    claim = volume_claim("data", storageClassName="manual")
    found = placed(volume("v", zone="b", **fields), claim, using("a", "data"))
    assert found == ({"default/a": "n1"} if bound else {})


def test_a_claim_gets_the_smallest_volume_that_no_other_claim_has():
    volumes = [volume("a", "3Gi", "a"), volume("b", "2Gi", "b"), volume("c", "1Gi", "a")]
    claims = [volume_claim(name, storageClassName="manual") for name in ("d", "e")]
    for claim in claims:
        claim["spec"]["resources"] = {"requests": {"storage": "2Gi"}}
    using_both = [using("p-d", "d"), using("p-e", "e")]
    assert placed(*volumes, *claims, *using_both) == {"default/p-d": "n1", "default/p-e": "n0"}


def test_a_volume_that_names_a_claim_is_not_given_to_another():
    named = volume("v", zone="b", claimRef={"namespace": "default", "name": "later"})
    claims = [volume_claim(name, storageClassName="manual") for name in ("data", "later")]
    pods = [using("p-data", "data"), using("p-later", "later")]
    assert placed(named, *claims, *pods) == {"default/p-later": "n1"}


def test_a_claim_that_waits_for_its_consumer_gets_only_the_volume_that_names_it():
    waiting = storage_class("manual") | NO_PROVISIONER
    claim = volume_claim("data", storageClassName="manual")
    named = volume("large", "9Gi", "b", claimRef={"namespace": "default", "name": "data"})
    assert placed(waiting, volume("v", zone="a"), named, claim, using("a", "data")) == {
        "default/a": "n1"
    }


def test_a_claim_that_a_cluster_has_is_left_as_it_is():
    claim = volume_claim("data") | {"status": {"phase": "Pending"}}
    assert placed(at_once(), claim, using("a", "data")) == {}


@pytest.mark.parametrize("size", ["odd", None, {}])
def test_a_claim_that_cannot_be_read_takes_no_volume(size):
    claim = volume_claim("data", resources={"requests": {"storage": size}})
    placed_pods = placed(at_once(), claim, using("a", "data"), pod("b"))
    assert "default/b" in placed_pods
