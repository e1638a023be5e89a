from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.documents import owner_reference
from kai_py.embedded.resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from tests.embedded.manifests import config_map, pod
from tests.embedded.placing import names


def owned_by(name, *owners, **meta):
    references = [{**owner_reference(owner), "controller": False} for owner in owners]
    return config_map(name, ownerReferences=references, **meta)


def test_an_object_goes_with_its_last_owner(cluster):
    first, second = cluster.create(config_map("o1")), cluster.create(config_map("o2"))
    cluster.create(owned_by("child", first, second))
    delete(cluster.api, CONFIG_MAPS, "o1", "default")
    cluster.clock.advance(1)
    child = cluster.api.get(CONFIG_MAPS, "child", "default")
    assert [each["name"] for each in child["metadata"]["ownerReferences"]] == ["o2"]
    delete(cluster.api, CONFIG_MAPS, "o2", "default")
    cluster.clock.advance(1)
    assert names(cluster, CONFIG_MAPS) == []


def test_an_object_whose_owner_never_was_goes_too(cluster):
    ghost = {**config_map("ghost", uid="no-such-uid")}
    cluster.create(owned_by("child", ghost))
    cluster.clock.advance(1)
    assert names(cluster, CONFIG_MAPS) == []


def test_foreground_deletion_waits_for_the_dependents(cluster):
    owner = cluster.create(config_map("owner"))
    cluster.create(owned_by("child", owner, finalizers=["x.io/hold"]))
    delete(cluster.api, CONFIG_MAPS, "owner", "default", DeleteOptions(policy="Foreground"))
    cluster.clock.advance(1)
    assert names(cluster, CONFIG_MAPS) == ["child", "owner"]

    def release(present):
        return {**present, "metadata": {**present["metadata"], "finalizers": []}}

    cluster.api.edit(CONFIG_MAPS, "child", "default", release)
    cluster.clock.advance(1)
    assert names(cluster, CONFIG_MAPS) == []


def test_orphaning_cuts_the_references(cluster):
    owner = cluster.create(config_map("owner"))
    cluster.create(owned_by("child", owner))
    delete(cluster.api, CONFIG_MAPS, "owner", "default", DeleteOptions(policy="Orphan"))
    cluster.clock.advance(1)
    assert names(cluster, CONFIG_MAPS) == ["child"]
    child = cluster.api.get(CONFIG_MAPS, "child", "default")
    assert "ownerReferences" not in child["metadata"]


def test_a_namespace_gets_its_account_and_goes_when_it_is_empty(cluster):
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
    cluster.clock.advance(1)
    assert cluster.api.get(SERVICE_ACCOUNTS, "default", "x")
    cluster.create(config_map("held", namespace="x", finalizers=["x.io/hold"]))
    cluster.create(pod("p", namespace="x"))
    delete(cluster.api, NAMESPACES, "x")
    cluster.clock.advance(1)
    assert "x" in names(cluster, NAMESPACES)
    assert names(cluster, CONFIG_MAPS) == ["held"]

    def release(present):
        return {**present, "metadata": {**present["metadata"], "finalizers": []}}

    cluster.api.edit(CONFIG_MAPS, "held", "x", release)
    cluster.clock.advance(1)
    assert "x" not in names(cluster, NAMESPACES)
