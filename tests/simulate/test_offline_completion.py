"""What an API server and its controllers add to objects in files, and its effect on the plan."""

import pytest

from tests.simulate.manifests import QUEUE, job, node, placed_on, plan, pod


def class_(kind, name, **fields):
    group = {"PriorityClass": "scheduling.k8s.io/v1", "RuntimeClass": "node.k8s.io/v1"}[kind]
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name}, **fields}


def evicted(found):
    return [each["pod"] for each in found["evictions"]]


def rejected(found):
    return {each["object"]: each["problem"] for each in found["rejected"]}


HIGH = class_("PriorityClass", "high", value=1000)


def workload(kind, name, **spec):
    """A pod for 4 GPUs, or a Job with it."""
    if kind == "Pod":
        return pod(name, gpus=4, **spec)
    made = job(name, 1)
    made["spec"]["template"]["spec"] |= spec
    for each in ("requests", "limits"):
        resources = made["spec"]["template"]["spec"]["containers"][0]["resources"]
        resources[each] = {"nvidia.com/gpu": "4"}
    return made


KINDS = pytest.mark.parametrize("kind", ["Pod", "Job"])


@KINDS
@pytest.mark.parametrize(("policy", "victims"), [("Never", 0), ("PreemptLowerPriority", 1)])
def test_whether_pods_may_preempt_follows_from_their_class(kind, policy, victims):
    running, wanted = pod("low", gpus=4, node="n0"), workload(kind, "a", priorityClassName="high")
    found = plan(node("n0"), QUEUE, HIGH | {"preemptionPolicy": policy}, running, wanted)
    assert len(evicted(found)) == victims


@KINDS
def test_the_lowest_default_class_counts_for_pods_that_name_none(kind):
    classes = [
        class_("PriorityClass", name, value=value, globalDefault=True)
        for name, value in (("a", 50), ("b", 20), ("c", 90))
    ]
    running = [pod(f"low-{each}", gpus=4, node=f"n{each}", priority=each) for each in (19, 20)]
    nodes = [node("n19"), node("n20")]
    found = plan(*nodes, QUEUE, *classes, *running, workload(kind, "a"), workload(kind, "b"))
    assert evicted(found) == ["default/low-19"]


@KINDS
def test_the_classes_of_kai_exist(kind):
    found = plan(node("n0"), QUEUE, workload(kind, "a", priorityClassName="train"))
    assert (len(found["placements"]), rejected(found)) == (1, {})


@KINDS
def test_a_class_that_does_not_exist_is_reported(kind):
    found = plan(node("n0"), QUEUE, workload(kind, "a", priorityClassName="lost"))
    [(name, problem)] = rejected(found).items()
    assert (name, found["placements"]) == (f"{kind} default/a", [])
    assert problem.endswith("no PriorityClass with name lost was found")


def test_a_pod_that_was_applied_needs_no_class():
    applied = pod("a", priorityClassName="lost")
    applied["metadata"]["uid"] = "u"
    assert placed_on(plan(node("n0"), QUEUE, applied)) == {"default/a": "n0"}


def sandbox(**fields):
    return class_("RuntimeClass", "kata", handler="kata", **fields)


def test_a_runtime_class_chooses_nodes():
    tainted = node("n1") | {"spec": {"taints": [{"key": "kata", "effect": "NoSchedule"}]}}
    tainted["metadata"]["labels"] = {"sandbox": "kata"}
    scheduling = {"nodeSelector": {"sandbox": "kata"}, "tolerations": [{"operator": "Exists"}]}
    wanted = [workload(kind, kind.lower(), runtimeClassName="kata") for kind in ("Pod", "Job")]
    found = plan(node("n0"), tainted, QUEUE, sandbox(scheduling=scheduling), *wanted)
    assert list(placed_on(found).values()) == ["n1"]
    clash = pod("a", runtimeClassName="kata", nodeSelector={"sandbox": "none"})
    found = plan(node("n0"), tainted, QUEUE, sandbox(scheduling=scheduling), clash)
    assert (
        "conflict: runtimeClass.scheduling.nodeSelector[sandbox]"
        in rejected(found)["Pod default/a"]
    )


@pytest.mark.parametrize(
    ("own", "started"), [(None, 1), ({"cpu": "33000m"}, 1), ({"cpu": "1"}, "refused")]
)
def test_the_overhead_of_a_runtime_class_counts(own, started):
    overhead = sandbox(overhead={"podFixed": {"cpu": 33}})
    spec = {"runtimeClassName": "kata"} | ({"overhead": own} if own else {})
    found = plan(node("n0"), QUEUE, overhead, *(pod(name, **spec) for name in "ab"))
    if started == "refused":
        assert set(rejected(found)) == {"Pod default/a", "Pod default/b"}
    else:
        assert len(found["placements"]) == started


def test_a_runtime_class_that_is_not_given_changes_nothing():
    found = plan(node("n0"), QUEUE, pod("a", runtimeClassName="nvidia"))
    assert placed_on(found) == {"default/a": "n0"}


def limits(**item):
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "defaults"},
        "spec": {"limits": [{"type": "Container", **item}]},
    }


@KINDS
@pytest.mark.parametrize(
    "item",
    [
        {"defaultRequest": {"cpu": "33"}},
        {"default": {"cpu": "33"}},
        {"max": {"cpu": "33"}},
        {"min": {"cpu": "33"}},
    ],
)
def test_amounts_that_pods_leave_open_come_from_limit_ranges(kind, item):
    wanted = [workload(kind, name) for name in "ab"]
    found = plan(node("n0", gpus=8), QUEUE, limits(**item), *wanted)
    assert len(found["placements"]) == 1
    elsewhere = limits(**item)
    elsewhere["metadata"]["namespace"] = "other"
    assert len(plan(node("n0", gpus=8), QUEUE, elsewhere, *wanted)["placements"]) == 2


def test_the_default_limit_bounds_what_a_pod_requests():
    asking = pod("a")
    asking["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "4"}
    found = plan(node("n0"), QUEUE, limits(default={"cpu": "2"}), asking)
    assert "must be less than or equal to cpu limit of 2" in rejected(found)["Pod default/a"]


def test_pods_that_were_applied_are_completed_no_more():
    applied = [pod(name) for name in "ab"]
    for each in applied:
        each["status"] = {"phase": "Pending"}
    found = plan(node("n0"), QUEUE, limits(defaultRequest={"cpu": "33"}), *applied)
    assert len(found["placements"]) == 2


@pytest.mark.parametrize("odd", [{"limits": "x"}, {"limits": [7]}, "x", None])
def test_limit_ranges_that_cannot_be_read_change_nothing(odd):
    found = plan(node("n0"), QUEUE, limits() | {"spec": odd}, pod("a"), job("b", 1))
    assert len(found["placements"]) == 2


def test_what_a_node_has_is_allocatable_unless_it_says_less():
    given = node("n0", capacity={"cpu": "8", "pods": "110", "nvidia.com/gpu": "4"})
    del given["status"]["allocatable"]
    assert placed_on(plan(given, QUEUE, pod("a"))) == {"default/a": "n0"}
    full = node("n0", gpus=0, capacity={"cpu": "8", "pods": "110", "nvidia.com/gpu": "4"})
    assert plan(full, QUEUE, pod("a"))["placements"] == []


@pytest.mark.parametrize(
    ("meta", "nodes"),
    [
        ({}, 2),
        ({"labels": None}, 2),
        ({"labels": {"a": "b"}}, 2),
        ({"labels": {"kubernetes.io/hostname": "same"}}, 1),
    ],
)
def test_new_nodes_have_the_label_with_their_name(meta, nodes):
    given = [node(name) for name in ("n0", "n1")]
    for each in given:
        each["metadata"] |= meta
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    found = plan(*given, QUEUE, *(pod(name, affinity=apart) for name in "ab"))
    assert len(set(placed_on(found).values())) == nodes


@pytest.mark.parametrize("given", [[], [{"kind": "Namespace", "metadata": {"name": "other"}}]])
def test_namespaces_have_the_label_with_their_name(given):
    namespaces = [{"apiVersion": "v1", **each} for each in given]
    near = pod("near", node="n0")
    near["metadata"] |= {"namespace": "other", "labels": {"app": "cache"}}
    term = {
        "topologyKey": "host",
        "labelSelector": {"matchLabels": {"app": "cache"}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}},
    }
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    hosts = [node("n0"), node("n1")]
    for each in hosts:
        each["metadata"]["labels"] = {"host": each["metadata"]["name"]}
    found = plan(*hosts, QUEUE, *namespaces, near, pod("a", affinity=affinity))
    assert placed_on(found) == {"default/a": "n0"}


def test_a_pod_group_has_the_priority_of_its_class():
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}, "priorityClassName": "high"},
    }
    member = pod("a", schedulingGroup={"podGroupName": "g"})
    found = plan(node("n0"), QUEUE, HIGH, group, pod("low", gpus=4, node="n0"), member)
    assert evicted(found) == ["default/low"]


def deployment(replicas, **meta):
    template = pod("unused")
    template["spec"]["containers"][0]["image"] = "i"
    labels = template["metadata"]["labels"]
    counted = {} if replicas == "unset" else {"replicas": replicas}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", **meta},
        "spec": {
            **counted,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }


def autoscaler(version="v2", target="apps/v1", **bounds):
    return {
        "apiVersion": f"autoscaling/{version}",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "scale"},
        "spec": {
            "scaleTargetRef": {"apiVersion": target, "kind": "Deployment", "name": "web"},
            **bounds,
        },
    }


@pytest.mark.parametrize(
    ("replicas", "scaling", "pods"),
    [
        ("unset", {"minReplicas": 3, "maxReplicas": 4}, 3),
        (None, {"minReplicas": 3, "maxReplicas": 4, "version": "v1"}, 3),
        (4, {"minReplicas": 1, "maxReplicas": 2}, 2),
        (2, {"maxReplicas": 4}, 2),
        (0, {"minReplicas": 3, "maxReplicas": 4}, 0),
        (1, {"minReplicas": 3, "maxReplicas": 4, "target": "example.com/v1"}, 1),
        (1, {"minReplicas": "3", "maxReplicas": 4}, 1),
        (1, {"minReplicas": 3}, 1),
        (1, {"minReplicas": 3, "maxReplicas": 4, "scaleTargetRef": "web"}, 1),
    ],
)
def test_an_autoscaler_bounds_the_replicas_of_its_target(replicas, scaling, pods):
    found = plan(node("n0"), QUEUE, deployment(replicas), autoscaler(**scaling))
    assert len(found["placements"]) == pods


def test_an_autoscaler_does_not_scale_what_a_cluster_has():
    applied = deployment(1, uid="u")
    found = plan(node("n0"), QUEUE, applied, autoscaler(minReplicas=3, maxReplicas=4))
    assert found["placements"] == []


def budget(**fields):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"selector": {"matchLabels": {"app": "low"}}},
        **fields,
    }


def with_budget(spec, replicas=4, **fields):
    """Pods of a StatefulSet that fill a node, and two of higher priority."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "controller": True}
    owning = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "s"},
        "spec": {"replicas": replicas},
    }
    running = [pod(f"low-{each}", node="n0") for each in range(4)]
    for each in running:
        each["metadata"]["labels"]["app"] = "low"
        each["metadata"]["ownerReferences"] = [owner]
    given = budget(**fields)
    given["spec"] |= spec
    wanted = [pod(f"high-{each}", priorityClassName="high") for each in range(4)]
    return [node("n0"), QUEUE, HIGH, owning, *running, *wanted, given]


@pytest.mark.parametrize(
    ("spec", "replicas", "victims"),
    [
        ({"minAvailable": 3}, 4, 1),
        ({"minAvailable": "50%"}, 4, 2),
        ({"maxUnavailable": 3}, 4, 3),
        ({"maxUnavailable": 3}, 6, 1),
        ({"maxUnavailable": 0}, 4, 0),
    ],
)
def test_a_budget_without_a_status_allows_what_its_controller_would(spec, replicas, victims):
    found = plan(*with_budget(spec, replicas), until_rest=True)
    assert len(evicted(found)) == victims


@pytest.mark.parametrize(
    ("policy", "status", "victims"),
    [
        ("AlwaysAllow", {"disruptionsAllowed": 1}, 2),
        ("IfHealthyBudget", {"disruptionsAllowed": 1}, 1),
        ("IfHealthyBudget", {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2}, 2),
    ],
)
def test_a_pod_that_is_not_ready_uses_no_budget_up_that_lets_it_go(policy, status, victims):
    made = with_budget({"maxUnavailable": 1, "unhealthyPodEvictionPolicy": policy}, status=status)
    broken = next(each for each in made if each["metadata"]["name"] == "low-3")
    conditions = [{"type": "Ready", "status": "False"}]
    broken["status"] = {"phase": "Running", "conditions": conditions}
    assert len(evicted(plan(*made, until_rest=True))) == victims


def test_a_budget_allows_one_eviction_less_after_each():
    status = {"disruptionsAllowed": 2, "expectedPods": 4}
    found = plan(*with_budget({"minAvailable": 2}, status=status), until_rest=True)
    assert (len(evicted(found)), found["rest"]) == (2, True)


def owned(name, kind, api_version, **fields):
    """A pod of an owner of this kind and name."""
    made = pod(name, **fields)
    owner = {"apiVersion": api_version, "kind": kind, "name": "w", "controller": True}
    made["metadata"]["ownerReferences"] = [{**owner, "uid": "w"}]
    return made


def absent(found):
    return [each["object"] for each in found["rejected"] if "is not among" in each["problem"]]


def test_owners_of_waiting_pods_that_are_not_given_are_named():
    waiting = owned("a", "PyTorchJob", "kubeflow.org/v1")
    assert absent(plan(node("n0"), QUEUE, waiting)) == ["PyTorchJob default/w"]
    replicas = {"Worker": {"replicas": 1}}
    given = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "w"}}
    given["spec"] = {"pytorchReplicaSpecs": replicas}
    assert absent(plan(node("n0"), QUEUE, waiting, given)) == []
    given["metadata"]["ownerReferences"] = [
        {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": "above"}
    ]
    assert absent(plan(node("n0"), QUEUE, waiting, given)) == ["AppWrapper default/above"]


@pytest.mark.parametrize(
    ("kind", "api_version", "labels"),
    [
        ("PyTorchJob", "kubeflow.org/v1", {"training.kubeflow.org/replica-type": "worker"}),
        ("XGBoostJob", "kubeflow.org/v1", {"training.kubeflow.org/replica-type": "master"}),
        ("JAXJob", "kubeflow.org/v1", {"training.kubeflow.org/replica-type": "worker"}),
        ("MPIJob", "kubeflow.org/v2beta1", {"training.kubeflow.org/job-role": "worker"}),
        ("JobSet", "jobset.x-k8s.io/v1alpha2", {"jobset.sigs.k8s.io/replicatedjob-name": "a"}),
        ("RayCluster", "ray.io/v1", {"ray.io/group": "gpu-workers"}),
        ("RayJob", "ray.io/v1", {"ray.io/group": "gpu-workers"}),
        ("FlinkDeployment", "flink.apache.org/v1beta1", {"component": "taskmanager"}),
        ("Job", "batch.volcano.sh/v1alpha1", {"volcano.sh/task-spec": "worker"}),
    ],
)
def test_of_an_owner_that_is_not_given_nothing_is_wrong(kind, api_version, labels):
    waiting = owned("a", kind, api_version)
    waiting["metadata"].setdefault("labels", {}).update(labels)
    found = plan(node("n0"), QUEUE, waiting)
    assert [each["pod"] for each in found["placements"]] == ["default/a"]
    assert absent(found) == [f"{kind} default/w"]


def test_pods_that_state_the_size_of_their_group_need_no_owner():
    prefix, api_version = "leaderworkerset.sigs.k8s.io", "leaderworkerset.x-k8s.io/v1"
    pods = [owned(f"w-0-{index}", "LeaderWorkerSet", api_version) for index in (0, 1)]
    for index, each in enumerate(pods):
        labels = {f"{prefix}/group-index": "0", f"{prefix}/worker-index": str(index)}
        each["metadata"].setdefault("labels", {}).update(labels)
        each["metadata"].setdefault("annotations", {})[f"{prefix}/size"] = "2"
    assert len(plan(node("n0"), QUEUE, *pods)["placements"]) == 2
    [pending] = plan(node("n0"), QUEUE, pods[0])["pending"]
    assert pending["message"] == "minMember is 2; existing pods: 1."


def test_a_job_suspended_for_others_stands_for_its_pods_beside_absent_owners():
    suspended = job("j", 1)
    suspended["metadata"]["annotations"] = {"scheduling.kai.io/suspended-by": "kai-scheduler"}
    suspended["spec"]["suspend"] = True
    waiting = owned("a", "PyTorchJob", "kubeflow.org/v1")
    assert absent(plan(node("n0"), QUEUE, suspended, waiting)) == ["PyTorchJob default/w"]
    above = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "above", "uid": "above"}
    suspended["metadata"]["ownerReferences"] = [above]
    found = plan(node("n0"), QUEUE, suspended, waiting)
    assert absent(found) == ["CronJob default/above", "PyTorchJob default/w"]


def test_owners_of_pods_in_a_pod_group_are_not_named():
    waiting = owned("a", "PyTorchJob", "kubeflow.org/v1")
    waiting["metadata"]["annotations"] = {"pod-group-name": "g"}
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"queue": QUEUE["metadata"]["name"], "minMember": 1},
    }
    found = plan(node("n0"), QUEUE, waiting, group)
    assert absent(found) == []
    assert [each["pod"] for each in found["placements"]] == ["default/a"]


def test_owners_that_decide_nothing_are_not_named():
    running = owned("a", "PyTorchJob", "kubeflow.org/v1", node="n0")
    other = owned("b", "PyTorchJob", "kubeflow.org/v1")
    other["spec"]["schedulerName"] = "default-scheduler"
    ended = owned("c", "PyTorchJob", "kubeflow.org/v1")
    ended["status"] = {"phase": "Failed"}
    static = owned("d", "Node", "v1")
    assert absent(plan(node("n0"), QUEUE, running, other, ended, static)) == []


def test_a_workload_gets_its_pods_whatever_its_owner():
    owned = job("a", 1)
    owner = {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "name": "model"}
    owned["metadata"]["ownerReferences"] = [{**owner, "uid": "model", "controller": True}]
    found = plan(node("n0"), QUEUE, owned)
    assert len(placed_on(found)) == 1
    assert list(rejected(found)) == absent(found) == ["InferenceService default/model"]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("made", [pod, lambda name: job(name, 1)])
def test_a_copy_with_the_uid_of_another_object_is_a_new_one(made, order):
    copies = [made("a"), made("b")]
    for each in copies:
        each["metadata"] |= {"uid": "same", "resourceVersion": "7"}
    found = plan(node("n0"), QUEUE, *copies[::order])
    kind = copies[0]["kind"]
    problem = f"metadata.uid is that of {kind} default/a; it counts as a new object"
    assert rejected(found) == {f"{kind} default/b": problem}
    started = {name.split("/")[1][0] for name in placed_on(found)}
    assert started == ({"a", "b"} if kind == "Pod" else {"b"})
