"""Plans of objects in files: what is read, what is completed, what is decided."""

import json

import msgspec
import pytest

from kai_py.config import Configuration
from kai_py.simulate.offline_plan import newest_time
from tests.simulate.manifests import (
    ANY_DEVICE,
    QUEUE,
    allocated,
    gpus_of,
    job,
    node,
    placed_on,
    plan,
    pod,
    two_zones,
)


def test_a_pod_without_uid_or_status_is_placed():
    found = plan(node("n0"), QUEUE, pod("a"))
    assert found["placements"] == [{"pod": "default/a", "node": "n0", "cycle": 1, "claims": {}}]
    assert (found["version"], found["cycles"], found["rest"]) == (1, 1, False)


def test_a_job_that_was_never_applied_gets_its_pods():
    found = plan(node("n0"), QUEUE, job("train", 3), until_rest=True)
    assert len(found["placements"]) == 3
    assert all(each["pod"].startswith("default/train-") for each in found["placements"])
    assert (found["cycles"], found["rest"]) == (2, True)


def test_a_job_with_pods_of_its_own_gets_no_more():
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}
    running = pod("train-0", node="n0")
    running["metadata"]["ownerReferences"] = [owner]
    found = plan(node("n0"), QUEUE, job("train", 3), running)
    assert found["placements"] == []


def test_a_job_that_the_server_would_refuse_is_rejected():
    wrong = job("train", 3)
    wrong["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    found = plan(node("n0"), QUEUE, wrong, pod("a"))
    assert [each["object"] for each in found["rejected"]] == ["Job default/train"]
    assert [each["pod"] for each in found["placements"]] == ["default/a"]


@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_gpus_that_pods_of_a_job_only_request_count_as_limited(field):
    given = job("train", 4)
    spec = given["spec"]["template"]["spec"]
    requests = {"nvidia.com/gpu": "2", "cpu": "1"}
    spec[field] = [{"name": "x", "image": "i", "resources": {"requests": requests}}]
    found = plan(node("n0", gpus=8), QUEUE, given)
    assert (len(found["placements"]), found["rejected"]) == (4, [])
    found = plan(node("n0", gpus=7), QUEUE, given)
    assert (found["placements"], found["rejected"]) == ([], [])


@pytest.mark.parametrize(
    ("fields", "started"),
    [
        ({"successPolicy": {"rules": [{"succeededIndexes": "0"}]}}, 3),
        ({"backoffLimitPerIndex": 1, "maxFailedIndexes": 2}, 3),
        ({"managedBy": "kubernetes.io/job-controller"}, 3),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, 0),
    ],
)
def test_what_matters_when_pods_end_keeps_no_job_from_its_pods(fields, started):
    given = job("train", 3)
    given["spec"] |= {"completionMode": "Indexed", **fields}
    found = plan(node("n0"), QUEUE, given)
    assert len(found["placements"]) == started
    assert bool(found["rejected"]) == (not started)


def test_the_pods_of_a_stateful_set_are_numbered_from_its_start():
    template = pod("unused")
    template["spec"]["containers"][0]["image"] = "i"
    labels = template["metadata"]["labels"]
    given = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 2,
            "ordinals": {"start": 5},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }
    assert set(placed_on(plan(node("n0"), QUEUE, given))) == {"default/db-5", "default/db-6"}


ONE_GPU = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]


def one_gpu():
    """One device, its class, and the template of ``ONE_GPU``."""
    slice_ = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "n0-gpus"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "n0",
            "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    }
    request = {"name": "gpu", "exactly": {"deviceClassName": "any"}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one-gpu"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "any"},
        "spec": {},
    }
    return slice_, template, device_class


def test_claims_of_templates_are_made_and_allocated():
    asking = [pod(name, gpus=0, resourceClaims=ONE_GPU) for name in ("a", "b")]
    found = plan(node("n0"), QUEUE, *one_gpu(), *asking)
    [placed] = found["placements"]
    allocation = placed["claims"]["default/a-gpu"]
    assert allocation["devices"]["results"][0]["device"] == "gpu-0"
    assert [each["gang"] for each in found["pending"]] == ["default/Pod/b"]


@pytest.mark.parametrize(("entries", "started"), [(ONE_GPU, 2), ([], 0), ("x", 0)])
def test_a_claim_that_the_pod_group_names_as_well_is_made_once_for_all_pods(entries, started):
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": entries},
    }
    joined = {"schedulingGroup": {"podGroupName": "g"}, "resourceClaims": ONE_GPU}
    asking = [pod(name, gpus=0, **joined) for name in ("a", "b")]
    found = plan(node("n0"), QUEUE, *one_gpu(), group, *asking)
    assert [list(each["claims"]) for each in found["placements"]] == [["default/g-gpu"]] * started


def preempting():
    classes = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 1000,
        }
    ]
    low, high = pod("low", gpus=4, node="n0"), pod("high", gpus=4, priorityClassName="high")
    return [node("n0"), QUEUE, *classes, low, high]


@pytest.mark.parametrize("given", [True, False], ids=["job", "job-unknown"])
def test_a_job_that_is_suspended_for_others_waits_to_be_resumed(given):
    """A Job whose pods must not fail is suspended; of one that is not given nothing is known."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "low", "controller": True}
    *others, low, high = preempting()
    low["metadata"]["ownerReferences"] = [owner]
    low_job = job("low", 1)
    low_job["spec"]["backoffLimit"] = 0
    low_job["spec"]["template"]["spec"]["containers"] = low["spec"]["containers"]
    found = plan(*others, low, high, *[low_job] * given, until_rest=True)
    assert [each["pod"] for each in found["placements"]] == ["default/high"]
    assert [each["gang"] for each in found["pending"]] == ["default/Job/low"] * given


def test_an_eviction_happens_at_once_and_the_nominated_pod_starts_in_the_next_cycle():
    found = plan(*preempting(), until_rest=True)
    [eviction] = found["evictions"]
    assert (eviction["pod"], eviction["rule"], eviction["cycle"]) == ("default/low", "preempt", 1)
    assert eviction["for"] == "default/Pod/high"
    assert [each["pod"] for each in found["nominations"]] == ["default/high"]
    assert [(each["pod"], each["cycle"]) for each in found["placements"]] == [("default/high", 2)]
    assert (found["cycles"], found["rest"]) == (3, True)


def test_a_terminating_pod_has_gone_after_the_first_cycle():
    leaving = pod("old", gpus=4, node="n0")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = plan(node("n0"), QUEUE, leaving, pod("new", gpus=4), until_rest=True)
    assert [(each["pod"], each["cycle"]) for each in found["placements"]] == [("default/new", 2)]
    assert found["evictions"] == []


def test_pods_that_say_nothing_of_their_start_may_be_relocated():
    found = plan(*half_full(owned=True), pod("large", gpus=4), until_rest=True)
    assert [each["rule"] for each in found["evictions"]] == ["consolidate"]
    assert [*placed_on(found)] == ["default/large"]


@pytest.mark.parametrize(
    ("settings", "moves"),
    [
        ({}, False),
        ({"eviction": {"consolidateOwnerless": True}}, True),
        ({"rules": "kai"}, True),
    ],
)
def test_pods_without_an_owner_are_relocated_only_where_that_is_asked_for(settings, moves):
    """Nothing creates them again."""
    objects = [*half_full(owned=False), pod("large", gpus=4)]
    configuration = Configuration.model_validate(settings)
    found = plan(*objects, until_rest=True, configuration=configuration)
    assert bool(found["evictions"]) is moves
    assert [*placed_on(found)] == (["default/large"] if moves else [])


def half_full(*, owned):
    """Two nodes with four GPUs each, of which one pod has two."""
    running = [pod(name, gpus=2, node=at) for name, at in (("a", "n0"), ("b", "n1"))]
    for each in running if owned else ():
        name = each["metadata"]["name"]
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"rs-{name}"}
        each["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    return [node("n0"), node("n1"), QUEUE, *running]


def test_what_waits_for_a_pod_that_terminates_late_is_decided_before_the_plan_rests():
    leaving, waits = pod("old", gpus=4, node="n0"), pod("new", gpus=4)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    waits["metadata"]["creationTimestamp"] = "2026-01-01T01:00:00Z"
    found = plan(node("n0"), QUEUE, leaving, waits, until_rest=True)
    assert [(each["pod"], each["cycle"]) for each in found["placements"]] == [("default/new", 2)]
    assert (found["cycles"], found["rest"]) == (3, True)
    assert plan(node("n0"), QUEUE, leaving, waits)["rest"] is False
    assert plan(node("n0"), QUEUE, waits, cycles=3)["rest"] is True


def test_what_cannot_be_read_is_named_and_the_rest_planned():
    bad = pod("bad") | {"metadata": {"name": "bad", "labels": ["a"]}}
    old = QUEUE | {"apiVersion": "scheduling.kai.io/v9"}
    found = plan(node("n0"), QUEUE, bad, old, pod("a"))
    rejected = {each["object"] for each in found["rejected"]}
    assert "Pod default/bad" in rejected
    assert [each["pod"] for each in found["placements"]] == ["default/a"]


def test_a_version_that_is_not_supported_is_named():
    found = plan(node("n0"), pod("a") | {"apiVersion": "v7"})
    [rejected] = found["rejected"]
    assert rejected["object"] == "Pod default/a"
    assert "v7 is not supported: use v1" in rejected["problem"]


def test_the_same_input_gives_the_same_bytes_in_any_order_of_objects():
    documents = [*preempting(), job("train", 2)]
    first = msgspec.json.encode(plan(*documents, until_rest=True))
    again = msgspec.json.encode(plan(*reversed(documents), until_rest=True))
    assert first == again


def test_given_documents_are_not_changed():
    documents = [*preempting(), job("train", 2)]
    before = json.dumps(documents)
    plan(*documents, until_rest=True)
    assert json.dumps(documents) == before


def test_names_of_made_pods_do_not_depend_on_the_order_of_files():
    documents = [node("n0"), QUEUE, *(job(name, 1) for name in "abc")]
    assert plan(*documents) == plan(*reversed(documents))


def test_of_two_states_of_an_object_the_newest_that_can_be_read_counts():
    def state(version, gpus, api="v1"):
        given = node("n0", gpus)
        return given | {"apiVersion": api, "metadata": {"name": "n0", "resourceVersion": version}}

    states = [state("9", 0), state("10", 4), state("11", 0, api="v9"), node("n0", 0)]
    for given in (states, states[::-1]):
        found = plan(*given, QUEUE, pod("a"))
        assert placed_on(found) == {"default/a": "n0"}
        assert [each["object"] for each in found["rejected"]] == ["Node n0"]
        assert "newest state" in found["rejected"][0]["problem"]


def test_a_pod_on_a_node_takes_its_capacity_though_a_field_cannot_be_read():
    bound = pod("odd", gpus=4, node="n0", tolerations=5)
    found = plan(node("n0"), QUEUE, bound, pod("a"))
    assert found["placements"] == []
    assert [each["object"] for each in found["rejected"]] == ["Pod default/odd"]


@pytest.mark.parametrize(
    "fields",
    [
        {"spec": {"resourceClaims": 5}},
        {"spec": {"resourceClaims": [None, "x"]}},
        {"status": {"resourceClaimStatuses": [None]}},
        {"status": {"conditions": [None, {"status": "True"}]}},
        {"status": {"conditions": "Ready"}},
        {"status": {"phase": 5}},
    ],
)
def test_a_pod_is_evicted_though_fields_of_it_are_odd(fields):
    world = preempting()
    odd = next(each for each in world if each["kind"] == "Pod" and each["spec"].get("nodeName"))
    odd["metadata"]["labels"] |= {"app": "odd"}
    for part, values in fields.items():
        odd[part] = odd.get(part, {}) | values
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "odd", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "odd"}}, "maxUnavailable": 1},
        "status": {"disruptionsAllowed": 1},
    }
    found = plan(*world, budget, until_rest=True)
    assert [each["pod"] for each in found["evictions"]] == [f"default/{odd['metadata']['name']}"]
    assert found["rest"]


def test_claims_of_pods_that_are_gone_are_released_after_the_first_cycle():
    device = {"request": "gpu", "driver": "d", "pool": "n0", "device": "gpu-0"}
    users = [{"resource": "pods", "name": "gone", "uid": "gone"}]
    slice_ = {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "ResourceSlice",
        "metadata": {"name": "n0"},
        "spec": {
            "driver": "d",
            "nodeName": "n0",
            "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    }

    def claim(name, **status):
        request = {"name": "gpu", "deviceClassName": "any"}
        return {
            "apiVersion": "resource.k8s.io/v1beta1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
            "status": status,
        }

    left = claim("left", allocation={"devices": {"results": [device]}}, reservedFor=users)
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "spec": {}}
    asks = pod("a", gpus=0, resourceClaims=[{"name": "gpu", "resourceClaimName": "own"}])
    found = plan(
        node("n0"), QUEUE, slice_, kind | {"metadata": {"name": "any"}}, left, claim("own"), asks,
        until_rest=True,
    )  # fmt: skip
    [placed] = found["placements"]
    assert (placed["pod"], placed["cycle"]) == ("default/a", 2)
    assert [*placed["claims"]] == ["default/own"]
    assert found["rest"]


def test_a_plan_rests_though_users_of_a_claim_cannot_be_read():
    device = {"request": "gpu", "driver": "d", "pool": "n0", "device": "gpu-0"}
    odd = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "odd"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "any"}}]}},
        "status": {
            "allocation": {"devices": {"results": [device]}},
            "reservedFor": [{"resource": "pods", "name": "gone", "uid": 1.5}],
        },
    }
    found = plan(node("n0"), QUEUE, odd, pod("a"), until_rest=True)
    assert (placed_on(found), found["rest"]) == ({"default/a": "n0"}, True)
    assert [each["object"] for each in found["rejected"]] == ["ResourceClaim default/odd"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_hold_nothing(phase):
    ended = pod("ended", gpus=4, node="n0") | {"status": {"phase": phase}}
    found = plan(node("n0"), QUEUE, ended, pod("a"))
    assert (placed_on(found), found["pending"]) == ({"default/a": "n0"}, [])


@pytest.mark.parametrize("selector", [[1], {"matchLabels": [1]}, {"matchExpressions": [1]}])
def test_a_workload_whose_selector_cannot_be_read_is_named(selector):
    wrong = job("d", 1) | {"apiVersion": "apps/v1", "kind": "Deployment"}
    wrong["spec"]["selector"] = selector
    found = plan(node("n0"), QUEUE, wrong, pod("a"))
    assert [each["object"] for each in found["rejected"]] == ["Deployment default/d"]
    assert placed_on(found) == {"default/a": "n0"}


def test_all_pods_of_a_stateful_set_are_made():
    workload = job("s", 1) | {"apiVersion": "apps/v1", "kind": "StatefulSet"}
    labels = {"app": "s", "scheduling.kai.io/queue-name": "team"}
    template = {"metadata": {"labels": labels}, "spec": pod("unused")["spec"]}
    template["spec"]["containers"][0]["image"] = "i"
    workload["spec"] = {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "s"}},
        "template": template,
    }
    assert [*placed_on(plan(node("n0"), QUEUE, workload))] == [f"default/s-{n}" for n in range(3)]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"parallelism": 2**31, "completions": None}, "requests 2,147,483,648 pods"),
        ({"parallelism": "3"}, "Expected `int | null`, got `str`"),
        ({"template": []}, "Expected `object`, got `array`"),
        ({"priorityClassName": "none"}, "gets no pods: "),
        ({"suspend": True, "parallelism": 2**31}, "it is suspended"),
    ],
)
def test_a_workload_whose_pods_cannot_be_made_is_named_once(fields, problem):
    wrong = job("train", 3)
    named = {k: fields.pop(k) for k in ("priorityClassName",) if k in fields}
    wrong["spec"]["template"]["spec"] |= named
    wrong["spec"] |= fields
    found = plan(node("n0"), QUEUE, wrong, pod("a"))
    assert [each["object"] for each in found["rejected"]] == ["Job default/train"]
    assert all(problem in each["problem"] for each in found["rejected"])
    assert placed_on(found) == {"default/a": "n0"}


@pytest.mark.parametrize("number", [2**63, 2**64, 10**30, 1e300, "1e400"])
def test_enormous_numbers_hurt_only_their_own_pod(number):
    found = plan(node("n0"), QUEUE, pod("large", gpus=number), pod("a"))
    assert placed_on(found) == {"default/a": "n0"}
    assert [each["stage"] for each in found["pending"]] == ["Invalid"]


def asking(limits, requests=None, **placed):
    given = pod("odd", **placed)
    amounts = {"limits": limits, "requests": limits if requests is None else requests}
    given["spec"]["containers"][0]["resources"] = amounts
    return given


GPUS = "nvidia.com/gpu"


REFUSED = {
    "less than nothing": ({"cpu": "-1"}, None, "[cpu]: Invalid value: \"-1\": must be greater"),
    "less than no GPU": ({GPUS: "-4"}, None, "must be greater than or equal to 0"),
    "a part of a GPU": ({GPUS: "500m"}, None, "must be an integer"),
    "more than the limit": ({"cpu": "1"}, {"cpu": "1500m"}, "must be less than or equal to cpu"),
    "fewer GPUs than the limit": ({GPUS: "2"}, {GPUS: "1"}, f"must be equal to {GPUS} limit of 2"),
    "no number": ({"cpu": "NaN"}, None, "quantities must match the regular expression"),
    "divided by nothing": ({"memory": "1/0"}, None, "quantities must match the regular"),
}  # fmt: skip


@pytest.mark.parametrize("amounts", REFUSED)
def test_amounts_that_an_api_server_refuses_are_rejected_with_its_reason(amounts):
    limits, requests, reason = REFUSED[amounts]
    found = plan(node("n0"), QUEUE, asking(limits, requests), pod("a", gpus=4))
    assert placed_on(found) == {"default/a": "n0"}
    assert found["pending"] == []
    [rejected] = found["rejected"]
    assert rejected["object"] == "Pod default/odd"
    assert rejected["problem"].startswith('Pod "odd" is invalid: ')
    assert "spec.containers[0].resources." in rejected["problem"]
    assert reason in rejected["problem"]


@pytest.mark.parametrize("amounts", REFUSED)
def test_a_node_takes_no_more_pods_where_one_stands_whose_amounts_are_refused(amounts):
    limits, requests, _ = REFUSED[amounts]
    found = plan(node("n0"), QUEUE, asking(limits, requests, node="n0"), pod("a"))
    assert found["placements"] == []
    assert [each["object"] for each in found["rejected"]] == ["Pod default/odd"]


def test_a_node_that_has_less_than_nothing_takes_no_pod():
    found = plan(node("n0", gpus=-4), node("n1", gpus="1.5"), QUEUE, pod("a", gpus=0))
    assert found["placements"] == []
    assert [each["object"] for each in found["rejected"]] == ["Node n0", "Node n1"]


def test_a_request_for_gpus_without_a_limit_is_read_as_both():
    given = asking({}, {GPUS: "2"})
    assert placed_on(plan(node("n0"), QUEUE, given)) == {"default/odd": "n0"}


@pytest.mark.parametrize("bound", [{}, {"node": "n0"}])
def test_nulls_among_amounts_are_as_absent(bound):
    odd = asking({"cpu": None, "memory": "-1"}, **bound)
    odd["spec"]["containers"].append(None)
    found = plan(node("n0"), QUEUE, odd, pod("a"))
    assert [each["object"] for each in found["rejected"]] == ["Pod default/odd"]
    assert placed_on(found) == ({} if bound else {"default/a": "n0"})


def test_a_workload_with_a_null_container_is_refused():
    odd = job("odd", 1)
    odd["spec"]["template"]["spec"]["containers"].append(None)
    found = plan(node("n0"), QUEUE, odd, pod("a"))
    [refused] = found["rejected"]
    assert refused["object"] == "Job default/odd"
    assert "containers[1]" in refused["problem"]
    assert placed_on(found) == {"default/a": "n0"}


def test_pods_placed_in_one_cycle_have_their_numa_zones_in_the_next():
    amounts = {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "3"}
    report = two_zones("n0", cpu="8", gpus="4")
    pods = [pod(name) for name in ("a", "b", "c")]
    for each, gpus in zip(pods, (3, 3, 2), strict=True):
        wanted = amounts | {"nvidia.com/gpu": str(gpus)}
        each["spec"]["containers"][0]["resources"] = {"requests": wanted, "limits": wanted}
    found = plan(node("n0", gpus=8), QUEUE, report, *pods, until_rest=True)
    assert sorted(placed_on(found)) == ["default/a", "default/b"]


def test_ports_of_the_hosts_network_are_host_ports():
    ports = [{"containerPort": 8080}]
    pods = [pod(name, hostNetwork=True) for name in ("a", "b")]
    for each in pods:
        each["spec"]["containers"][0]["ports"] = ports
    found = plan(node("n0"), node("n1"), QUEUE, *pods)
    assert sorted(placed_on(found).values()) == ["n0", "n1"]
    third = pod("c", hostNetwork=True)
    third["spec"]["containers"][0]["ports"] = ports
    found = plan(node("n0"), node("n1"), QUEUE, *pods, third)
    assert len(placed_on(found)) == 2
    assert "port" in found["pending"][0]["message"]


def test_limits_of_a_whole_pod_are_requests():
    """As an API server completes them: what containers request counts before the limit."""
    whole = {"limits": {"cpu": "40", "memory": "1Gi"}}
    found = plan(node("n0"), QUEUE, pod("a", resources=whole), pod("b", resources=whole))
    assert len(placed_on(found)) == 1
    small = [pod(name, resources=whole) for name in ("a", "b")]
    for each in small:
        each["spec"]["containers"][0]["resources"]["requests"] |= {"cpu": "1", "memory": "1Mi"}
    assert len(placed_on(plan(node("n0"), QUEUE, *small))) == 2


def kai_queue(name, **spec):
    metadata = {"name": name}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": metadata,
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("queues", "problem"),
    [
        ([QUEUE | {"spec": {"parent": "gone"}}], "parent 'gone' does not exist"),
        ([kai_queue("team", parentQueue="gone")], "parent 'gone' does not exist"),
        ([kai_queue("team", parentQueue="up"), kai_queue("up", parentQueue="team")], "ancestor"),
        (
            [kai_queue("team", resources={"gpu": {"quota": -3, "limit": -1}})],
            "spec.resources.gpu.quota is -3",
        ),
    ],
)
def test_what_is_wrong_with_a_queue_is_told(queues, problem):
    found = plan(node("n0"), *queues, pod("a"))
    [told] = [each["problem"] for each in found["rejected"] if each["object"] == "Queue team"]
    assert problem in told


WAITED_FOR = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}


def half_attached(*true):
    """A claim whose only user waits for its device; the conditions that are ``true``."""
    given = allocated("own", "n0", "a")
    [result] = given["status"]["allocation"]["devices"]["results"]
    device = {key: result[key] for key in ("driver", "pool", "device")}
    conditions = [{"type": each, "status": "True"} for each in true]
    result |= WAITED_FOR
    given["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:00Z"
    given["status"]["devices"] = [{**device, "conditions": conditions}]
    return given


def waiting(name="a"):
    asks = pod(name, gpus=0, resourceClaims=[{"name": "gpu", "resourceClaimName": "own"}])
    asks["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:01:00Z"}
    return asks


@pytest.mark.parametrize(
    ("true", "later", "reason"),
    [
        ((), 0, ""),
        (("Attached",), 700, ""),
        (("Attached", "Broken"), 0, "claim default/own: binding failed: gpu-0: Broken."),
        ((), 700, "claim default/own: not ready within 600 s: gpu-0: Attached."),
    ],
)
def test_a_claim_whose_devices_do_not_get_ready_is_released(true, later, reason):
    given = [node("n0"), node("n1"), QUEUE, ANY_DEVICE, gpus_of("n0"), gpus_of("n1")]
    given += [half_attached(*true), waiting()]
    now = newest_time(given) + later
    first = plan(*given, now=now)
    last = plan(*given, now=now, until_rest=True)
    if not reason:
        assert placed_on(first) == placed_on(last) == {"default/a": "n0"}
        return
    assert first["placements"] == []
    [pending] = first["pending"]
    assert (pending["stage"], pending["message"]) == ("SchedulerError", reason)
    [placed] = last["placements"]
    assert (placed["node"], placed["cycle"], last["rest"]) == ("n1", 2, True)
    [result] = placed["claims"]["default/own"]["devices"]["results"]
    assert result["pool"] == "n1"
    assert last["pending"] == []


def test_a_plan_rests_though_another_pod_keeps_a_claim_that_does_not_get_ready():
    given = half_attached("Broken")
    given["status"]["reservedFor"] += [{"resource": "pods", "name": "r", "uid": "uid-r"}]
    runs = waiting("r")
    runs["spec"]["nodeName"] = "n0"
    found = plan(
        node("n0"), QUEUE, ANY_DEVICE, gpus_of("n0"), given, waiting(), runs, until_rest=True
    )
    assert (found["placements"], found["rest"]) == ([], True)
    assert [each["stage"] for each in found["pending"]] == ["SchedulerError"]
