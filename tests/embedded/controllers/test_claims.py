import pytest

from kai_py.api.records.resource import DELETE_PROTECTION_FINALIZER
from kai_py.embedded.controllers.claims import CLAIM_NAME_ANNOTATION
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.kubelet import RUN_SECONDS
from kai_py.embedded.resources import CLAIMS, EVENTS, PODS
from tests.embedded.manifests import claim, claim_template, node, pod
from tests.embedded.placing import allocate, bind_all, names, phases


@pytest.fixture
def busy(cluster):
    cluster.create(node("n"))
    return cluster


def with_template(name, template="t", **more):
    reference = {"name": "gpu", "resourceClaimTemplateName": template}
    return pod(name, resourceClaims=[reference], restartPolicy="Never", **more)


def with_claim(name, **more):
    reference = {"name": "gpu", "resourceClaimName": "c"}
    return pod(name, resourceClaims=[reference], restartPolicy="Never", **more)


def the_claim(cluster):
    return cluster.api.list(CLAIMS)[0]


def test_a_template_becomes_a_claim_of_the_pod(busy):
    busy.create(claim_template("t"))
    created = busy.create(with_template("p"))
    busy.clock.advance(1)
    made = the_claim(busy)
    assert made["metadata"]["name"].startswith("p-gpu-")
    assert made["metadata"]["annotations"] == {CLAIM_NAME_ANNOTATION: "gpu"}
    owner = made["metadata"]["ownerReferences"][0]
    assert (owner["uid"], owner["controller"]) == (created["metadata"]["uid"], True)
    status = busy.api.get(PODS, "p", "default")["status"]
    assert status["resourceClaimStatuses"] == [
        {"name": "gpu", "resourceClaimName": made["metadata"]["name"]}
    ]


def test_a_missing_template_is_reported_and_waited_for(busy):
    busy.create(with_template("p"))
    busy.clock.advance(12)
    event = busy.api.list(EVENTS)[0]
    assert (event["reason"], event["involvedObject"]["name"]) == (
        "FailedResourceClaimCreation",
        "p",
    )
    assert event["count"] == 3
    busy.create(claim_template("t"))
    busy.clock.advance(1)
    assert len(names(busy, CLAIMS)) == 1


def test_a_claim_made_before_a_crash_is_adopted(bare, cluster):
    cluster.create(claim_template("t"))
    cluster.create(with_template("p"))
    cluster.clock.advance(1)
    forgotten = cluster.api.get(PODS, "p", "default")
    cluster.api.patch_status(PODS, forgotten, {"resourceClaimStatuses": None})
    cluster.clock.advance(1)
    assert len(names(cluster, CLAIMS)) == 1
    assert cluster.api.get(PODS, "p", "default")["status"]["resourceClaimStatuses"]


def test_a_finished_pod_gives_its_template_claim_back(busy):
    busy.create(claim_template("t"))
    busy.create(with_template("p", annotations={RUN_SECONDS: "5"}))
    busy.clock.advance(1)
    allocate(busy, names(busy, CLAIMS)[0], busy.api.list(PODS), "gpu-0")
    bind_all(busy)
    busy.clock.advance(3)
    assert phases(busy) == ["Running"]
    assert the_claim(busy)["status"]["allocation"]
    busy.clock.advance(5)
    assert phases(busy) == ["Succeeded"]
    assert names(busy, CLAIMS) == []


def test_a_shared_claim_is_given_back_by_its_last_pod(busy):
    busy.create(claim("c"))
    pods = [busy.create(with_claim(name)) for name in ("a", "b")]
    allocate(busy, "c", pods, "gpu-0")
    delete(busy.api, PODS, "a", "default")
    busy.clock.advance(1)
    assert [each["name"] for each in the_claim(busy)["status"]["reservedFor"]] == ["b"]
    assert the_claim(busy)["status"]["allocation"]
    delete(busy.api, PODS, "b", "default")
    busy.clock.advance(1)
    assert the_claim(busy)["status"] == {}
    assert "finalizers" not in the_claim(busy)["metadata"]


def test_a_namesake_of_a_consumer_does_not_keep_the_claim(busy):
    busy.create(claim("c"))
    first = busy.create(with_claim("a"))
    allocate(busy, "c", [first], "gpu-0")
    delete(busy.api, PODS, "a", "default")
    busy.create(with_claim("a"))
    busy.clock.advance(1)
    assert the_claim(busy)["status"] == {}


def test_a_running_consumer_keeps_the_claim_until_it_stopped(busy):
    busy.create(claim("c"))
    allocate(busy, "c", [busy.create(with_claim("a"))], "gpu-0")
    bind_all(busy)
    busy.clock.advance(5)
    delete(busy.api, PODS, "a", "default")
    busy.clock.advance(0.5)
    assert the_claim(busy)["status"]["reservedFor"]
    busy.clock.advance(2)
    assert the_claim(busy)["status"] == {}


def test_a_deleted_claim_waits_for_its_pods(busy):
    busy.create(claim("c"))
    allocate(busy, "c", [busy.create(with_claim("a"))], "gpu-0")
    assert not delete(busy.api, CLAIMS, "c", "default")[1]
    busy.clock.advance(1)
    assert names(busy, CLAIMS) == ["c"]
    delete(busy.api, PODS, "a", "default", DeleteOptions(grace_seconds=0))
    busy.clock.advance(1)
    assert names(busy, CLAIMS) == []


def test_what_a_scheduler_has_only_begun_is_left_alone(busy):
    busy.create(claim("c"))

    def protect(present):
        return {
            **present,
            "metadata": {**present["metadata"], "finalizers": [DELETE_PROTECTION_FINALIZER]},
        }

    busy.api.edit(CLAIMS, "c", "default", protect)
    busy.clock.advance(1)
    assert the_claim(busy)["metadata"]["finalizers"] == [DELETE_PROTECTION_FINALIZER]
    delete(busy.api, CLAIMS, "c", "default")
    busy.clock.advance(1)
    assert names(busy, CLAIMS) == []
