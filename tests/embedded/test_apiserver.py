import pytest

from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.errors import RequestError
from kai_py.embedded.resources import CONFIG_MAPS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES
from kai_py.embedded.subresources import bind
from tests.embedded.manifests import config_map, node, pod

GRACE = 30


def refused(call, *args, **kwargs):
    with pytest.raises(RequestError) as caught:
        call(*args, **kwargs)
    return caught.value


def changed(document, **meta):
    return {**document, "metadata": {**document["metadata"], **meta}}


def binding(name="n", **meta):
    return {"metadata": meta, "target": {"kind": "Node", "name": name}}


def test_the_server_owns_uid_time_revision_and_generation(bare):
    given = changed(pod("a"), uid="mine", creationTimestamp="1970-01-01T00:00:00Z", generation=7)
    meta = bare.create(given)["metadata"]
    assert meta["uid"] != "mine"
    assert meta["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert (meta["generation"], meta["resourceVersion"]) == (1, str(bare.store.revision))


def test_fields_that_are_null_are_absent_at_any_depth(bare):
    given = changed(pod("a"), labels={"team": None, "app": "x"})
    (container,) = given["spec"]["containers"]
    given["spec"] = {**given["spec"], "containers": [{**container, "resources": None}]}
    made = bare.create(given)
    assert made["metadata"]["labels"] == {"app": "x"}
    assert None not in made["spec"]["containers"][0].values()


def test_nulls_in_the_parameters_of_a_driver_stay(bare):
    parameters = {"mode": None}
    opaque = {"driver": "d.example.com", "parameters": parameters}
    request = {"name": "r", "exactly": {"deviceClassName": "c"}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default", "annotations": {"x": None}},
        "spec": {"devices": {"requests": [request], "config": [{"opaque": opaque}]}},
    }
    made = bare.create(claim)
    assert made["spec"]["devices"]["config"][0]["opaque"]["parameters"] == parameters


def test_generated_names_differ(bare):
    given = config_map("")
    del given["metadata"]["name"]
    given["metadata"]["generateName"] = "x-"
    names = {bare.create(given)["metadata"]["name"] for _ in range(50)}
    assert len(names) == 50
    assert all(len(name) == 7 and name.startswith("x-") for name in names)


def generated(bare, monkeypatch, *suffixes):
    """A ConfigMap whose generated names end in these, one after the other."""
    drawn = iter(suffixes)
    monkeypatch.setattr(bare.api.identity, "suffix", lambda: next(drawn))
    given = config_map("")
    given["metadata"] = {"namespace": "default", "generateName": "x-"}
    return bare.create(given)


def test_a_generated_name_that_is_taken_is_drawn_again(bare, monkeypatch):
    assert generated(bare, monkeypatch, "aaaaa")["metadata"]["name"] == "x-aaaaa"
    made = generated(bare, monkeypatch, *["aaaaa"] * 7, "bbbbb")
    assert made["metadata"]["name"] == "x-bbbbb"


def test_the_request_fails_after_eight_generated_names(bare, monkeypatch):
    generated(bare, monkeypatch, "aaaaa")
    assert refused(generated, bare, monkeypatch, *["aaaaa"] * 8).code == 409


@pytest.mark.parametrize("name", ["", "Upper", "a_b", "-a", "a" * 254])
def test_names_are_checked(bare, name):
    error = refused(bare.create, config_map(name))
    assert error.code == 422
    assert error.details["causes"][0]["field"] == "metadata.name"


def test_an_object_needs_its_namespace(bare):
    assert refused(bare.create, pod("a", namespace="nowhere")).code == 404


def test_a_stale_update_conflicts_and_a_current_one_wins(bare):
    first = bare.create(config_map("a"))
    second = bare.api.update(CONFIG_MAPS, "a", {**first, "data": {"x": "1"}}, "default")
    assert second["metadata"]["resourceVersion"] > first["metadata"]["resourceVersion"]
    error = refused(bare.api.update, CONFIG_MAPS, "a", {**first, "data": {"x": "2"}}, "default")
    assert (error.code, error.reason) == (409, "Conflict")
    assert bare.api.get(CONFIG_MAPS, "a", "default")["data"] == {"x": "1"}


def test_an_update_that_changes_nothing_is_no_write(bare):
    first = bare.create(config_map("a"))
    revision = bare.store.revision
    assert bare.api.update(CONFIG_MAPS, "a", first, "default") == first
    assert bare.store.revision == revision


def test_an_update_of_another_uid_conflicts(bare):
    first = bare.create(config_map("a"))
    stranger = changed(first, uid="other")
    assert refused(bare.api.update, CONFIG_MAPS, "a", stranger, "default").code == 409


def test_status_and_the_rest_are_written_apart(bare):
    created = bare.create({**pod("a"), "status": {"phase": "Running"}})
    assert created["status"]["phase"] == "Pending"
    main = {**created, "status": {"phase": "Failed"}}
    main["metadata"] = {**created["metadata"], "labels": {"x": "y"}}
    updated = bare.api.update(PODS, "a", main, "default")
    assert (updated["status"]["phase"], updated["metadata"]["labels"]) == ("Pending", {"x": "y"})
    status = {**updated, "spec": {"containers": []}, "status": {"phase": "Running"}}
    written = bare.api.update(PODS, "a", status, "default", subresource="status")
    assert (written["status"]["phase"], written["spec"]) == ("Running", updated["spec"])
    assert written["metadata"]["generation"] == 1


def test_a_dry_run_stores_nothing(bare):
    revision = bare.store.revision
    shown = bare.api.create(PODS, pod("a"), "default", dry_run=True)
    assert shown["spec"]["schedulerName"] == "default-scheduler"
    assert bare.api.find(PODS, "a", "default") is None
    assert bare.store.revision == revision


def test_finalizers_hold_a_deleted_object(bare):
    bare.create(config_map("a", finalizers=["x.io/hold"]))
    last, gone = delete(bare.api, CONFIG_MAPS, "a", "default")
    assert not gone
    assert last["metadata"]["deletionTimestamp"]
    more = changed(last, finalizers=["x.io/hold", "x.io/more"])
    assert refused(bare.api.update, CONFIG_MAPS, "a", more, "default").code == 422
    bare.api.update(CONFIG_MAPS, "a", changed(last, finalizers=[]), "default")
    assert bare.api.find(CONFIG_MAPS, "a", "default") is None


def test_an_update_cannot_revive_a_deleted_object(bare):
    bare.create(config_map("a", finalizers=["x.io/hold"]))
    last, _ = delete(bare.api, CONFIG_MAPS, "a", "default")
    alive = {**last, "metadata": {**last["metadata"]}}
    del alive["metadata"]["deletionTimestamp"]
    updated = bare.api.update(CONFIG_MAPS, "a", alive, "default")
    assert updated["metadata"]["deletionTimestamp"] == last["metadata"]["deletionTimestamp"]


def test_preconditions_of_a_deletion(bare):
    created = bare.create(config_map("a"))
    wrong = DeleteOptions(preconditions={"uid": "other"})
    assert refused(delete, bare.api, CONFIG_MAPS, "a", "default", wrong).code == 409
    right = DeleteOptions(preconditions={"uid": created["metadata"]["uid"]})
    assert delete(bare.api, CONFIG_MAPS, "a", "default", right)[1]


def test_a_pod_on_a_node_gets_its_grace_period(bare):
    bare.create(pod("a"))
    bind(bare.api, "a", "default", binding())
    last, gone = delete(bare.api, PODS, "a", "default")
    assert not gone
    assert last["metadata"]["deletionGracePeriodSeconds"] == GRACE
    assert last["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:30Z"
    assert delete(bare.api, PODS, "a", "default", DeleteOptions(grace_seconds=0))[1]


@pytest.mark.parametrize("given", [None, -7])
def test_a_negative_grace_period_is_a_second(bare, given):
    bare.create(pod("a", nodeName="n", terminationGracePeriodSeconds=-5))
    last, is_removed = delete(bare.api, PODS, "a", "default", DeleteOptions(grace_seconds=given))
    assert not is_removed
    assert last["metadata"]["deletionGracePeriodSeconds"] == 1


def test_a_pod_on_no_node_goes_at_once(bare):
    bare.create(pod("a"))
    assert delete(bare.api, PODS, "a", "default")[1]


def test_binding_happens_once(bare):
    created = bare.create(pod("a"))
    bound = bind(bare.api, "a", "default", binding("n1", annotations={"x": "y"}))
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"x": "y"}
    assert bound["status"]["conditions"][0]["type"] == "PodScheduled"
    assert bound["status"]["conditions"][0]["status"] == "True"
    assert refused(bind, bare.api, "a", "default", binding("n1")).code == 409
    assert refused(bind, bare.api, "a", "default", binding("n2")).code == 409
    assert bound["metadata"]["uid"] == created["metadata"]["uid"]


def test_binding_to_another_uid_a_gated_or_deleted_pod_conflicts(bare):
    bare.create(pod("a"))
    assert refused(bind, bare.api, "a", "default", binding(uid="other")).code == 409
    bare.create(pod("gated", schedulingGates=[{"name": "x"}]))
    assert refused(bind, bare.api, "gated", "default", binding()).code == 409
    bare.create(pod("leaving", finalizers=["x.io/hold"]))
    delete(bare.api, PODS, "leaving", "default")
    assert refused(bind, bare.api, "leaving", "default", binding()).code == 409
    assert refused(bind, bare.api, "missing", "default", binding()).code == 404
    assert refused(bind, bare.api, "a", "default", {"target": {}}).code == 422


def test_pod_defaults(bare):
    resources = {"limits": {"nvidia.com/gpu": "1", "cpu": "2"}, "requests": {"cpu": "1"}}
    containers = [{"name": "main", "image": "busybox", "resources": resources}]
    spec = bare.create(pod("a", containers=containers))["spec"]
    assert spec["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "1", "cpu": "1"}
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", GRACE)
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")


def test_empty_texts_get_the_defaults_of_absent_ones(bare):
    ports = [{"containerPort": 80, "hostPort": 80, "protocol": ""}]
    containers = [{"name": "main", "image": "busybox", "ports": ports, "imagePullPolicy": ""}]
    texts = {"restartPolicy": "", "schedulerName": "", "dnsPolicy": ""}
    spec = bare.create(pod("a", containers=containers, **texts))["spec"]
    given = (spec["restartPolicy"], spec["schedulerName"], spec["dnsPolicy"])
    assert given == ("Always", "default-scheduler", "ClusterFirst")
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert spec["containers"][0]["ports"][0]["protocol"] == "TCP"


def one_container(**resources):
    return {"containers": [{"name": "main", "image": "busybox:1", "resources": resources}]}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": []}, "spec.containers"),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy"),
        ({"containers": [{"name": "A", "image": "x"}]}, "spec.containers[0].name"),
        ({"containers": [{"name": "a"}]}, "spec.containers[0].image"),
        (
            one_container(requests={"cpu": "2"}, limits={"cpu": "1"}),
            "spec.containers[0].resources.requests",
        ),
        (one_container(requests={"cpu": "much"}), "spec.containers[0].resources.requests[cpu]"),
        (one_container(requests={"nvidia.com/gpu": "1"}), "spec.containers[0].resources.limits"),
        (one_container(claims=[{"name": "x"}]), "spec.containers[0].resources.claims[0]"),
        ({"resourceClaims": [{"name": "x"}]}, "spec.resourceClaims[0]"),
    ],
)
def test_pods_are_checked(bare, spec, field):
    error = refused(bare.create, pod("a", **spec))
    assert error.code == 422
    assert field in [cause["field"] for cause in error.details["causes"]]


def test_a_gated_pod_that_names_its_node_has_one_error(bare):
    error = refused(bare.create, pod("a", schedulingGates=[{"name": "x"}], nodeName="n"))
    assert [cause["field"] for cause in error.details["causes"]] == ["spec.nodeName"]


def test_a_pod_spec_is_fixed_but_for_a_few_fields(bare):
    created = bare.create(pod("a", schedulingGates=[{"name": "g"}], nodeSelector={"x": "y"}))
    spec = created["spec"]
    ungated = {key: value for key, value in spec.items() if key != "schedulingGates"}
    for change in ({"nodeName": "n"}, {"priority": 5}, {"schedulingGates": [{"name": "h"}]}):
        document = {**created, "spec": {**spec, **change}}
        assert refused(bare.api.update, PODS, "a", document, "default").code == 422
    updated = bare.api.update(PODS, "a", {**created, "spec": ungated}, "default")
    assert updated["metadata"]["generation"] == 2
    moved = {**updated, "spec": {**ungated, "nodeSelector": {"x": "z"}}}
    assert refused(bare.api.update, PODS, "a", moved, "default").code == 422


def test_priority_is_resolved_from_the_class(bare):
    def priority_class(name, value, **extra):
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        return {**kind, "metadata": {"name": name}, "value": value, **extra}

    bare.create(priority_class("high", 1000, preemptionPolicy="Never"))
    high = bare.create(pod("a", priorityClassName="high"))["spec"]
    assert (high["priority"], high["preemptionPolicy"]) == (1000, "Never")
    assert refused(bare.create, pod("b", priorityClassName="missing")).code == 403
    assert refused(bare.create, pod("c", priorityClassName="high", priority=7)).code == 403
    bare.create(priority_class("normal", 50, globalDefault=True))
    default = bare.create(pod("d"))["spec"]
    assert (default["priority"], default["priorityClassName"]) == (50, "normal")
    high_class = bare.api.get(PRIORITY_CLASSES, "high")
    changed_value = {**high_class, "value": 5}
    assert refused(bare.api.update, PRIORITY_CLASSES, "high", changed_value).code == 422


def test_a_node_may_bring_its_status_and_gets_allocatable(bare):
    given = node("n")
    del given["status"]["allocatable"]
    assert bare.create(given)["status"]["allocatable"]["cpu"] == "8"
    present = bare.api.get(NODES, "n")
    main = bare.api.update(NODES, "n", {**present, "status": {}})
    assert main["status"] == present["status"]


def test_the_system_namespaces_stay(bare):
    assert refused(delete, bare.api, NAMESPACES, "default").code == 403


def test_a_terminating_namespace_accepts_nothing_new(bare):
    bare.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
    _, gone = delete(bare.api, NAMESPACES, "x")
    assert not gone
    assert bare.api.get(NAMESPACES, "x")["status"]["phase"] == "Terminating"
    assert refused(bare.create, pod("a", namespace="x")).code == 403


def test_the_template_of_a_job_stays_as_it_was_written(bare):
    template = {"spec": {**one_container(limits={"cpu": "2"}), "restartPolicy": "Never"}}
    made = bare.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j", "namespace": "default"},
            "spec": {"template": template},
        }
    )
    [container] = made["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"limits": {"cpu": "2"}}
