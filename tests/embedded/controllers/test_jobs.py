import pytest

from kai_py.embedded.controllers.job_status import INDEX_KEY, format_indexes, parse_indexes
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.errors import RequestError
from kai_py.embedded.kubelet import EXIT_CODE, RUN_SECONDS
from kai_py.embedded.resources import JOBS, PODS
from kai_py.embedded.subresources import bind, evict
from tests.embedded.manifests import job, node
from tests.embedded.placing import bind_all, names, phases


def settle(cluster, seconds=0.5):
    cluster.clock.advance(seconds)


def status(cluster, name="j"):
    return cluster.api.get(JOBS, name, "default")["status"]


def conditions(cluster, name="j"):
    return {
        each["type"]: each.get("reason")
        for each in status(cluster, name).get("conditions") or ()
        if each["status"] == "True"
    }


@pytest.fixture
def busy(cluster):
    cluster.create(node("n"))
    return cluster


def run_seconds(seconds, **more):
    return {RUN_SECONDS: str(seconds), **more}


def test_a_job_gets_its_pods_and_completes(busy):
    busy.create(job("j", parallelism=2, completions=3, annotations=run_seconds(10)))
    settle(busy)
    assert len(names(busy, PODS)) == 2
    assert status(busy)["active"] == 2
    bind_all(busy)
    settle(busy, 5)
    assert status(busy)["ready"] == 2
    settle(busy, 10)
    assert status(busy)["succeeded"] == 2
    assert len(names(busy, PODS)) == 3
    bind_all(busy)
    settle(busy, 20)
    assert conditions(busy)["Complete"] == "CompletionsReached"
    assert status(busy)["succeeded"] == 3
    assert phases(busy) == ["Succeeded"] * 3
    assert "active" not in status(busy)


def test_pods_carry_the_jobs_labels_and_owner(busy):
    created = busy.create(job("j"))
    settle(busy)
    pod = busy.api.list(PODS)[0]
    uid = created["metadata"]["uid"]
    assert pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == uid
    assert pod["metadata"]["labels"]["job-name"] == "j"
    owner = pod["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", uid, True)


def test_indexed_jobs_number_their_pods_and_refill_gaps(busy):
    indexed = {"completionMode": "Indexed", "parallelism": 3, "completions": 4}
    busy.create(job("j", annotations=run_seconds(10), **indexed))
    settle(busy)
    indexes = [pod["metadata"]["annotations"][INDEX_KEY] for pod in busy.api.list(PODS)]
    assert indexes == ["0", "1", "2"]
    assert [pod["spec"]["hostname"] for pod in busy.api.list(PODS)] == ["j-0", "j-1", "j-2"]
    bind_all(busy)
    middle = next(name for name in names(busy, PODS) if name.startswith("j-1-"))
    delete(busy.api, PODS, middle, "default", DeleteOptions(grace_seconds=0))
    settle(busy, 12)
    assert status(busy)["completedIndexes"] == "0,2"
    live = [
        pod["metadata"]["annotations"][INDEX_KEY]
        for pod in busy.api.list(PODS)
        if pod["status"]["phase"] == "Pending"
    ]
    assert live == ["1", "3"]
    bind_all(busy)
    settle(busy, 30)
    assert status(busy)["completedIndexes"] == "0-3"
    assert "Complete" in conditions(busy)


def test_failures_beyond_the_limit_fail_the_job(busy):
    failing = run_seconds(1, **{EXIT_CODE: "3"})
    busy.create(job("j", backoffLimit=1, annotations=failing))
    for _ in range(4):
        settle(busy, 12)
        bind_all(busy)
    settle(busy, 12)
    assert conditions(busy)["Failed"] == "BackoffLimitExceeded"
    assert status(busy)["failed"] == 2
    assert phases(busy) == ["Failed", "Failed"]


def test_a_new_pod_waits_after_a_failure(busy):
    busy.create(job("j", annotations=run_seconds(1, **{EXIT_CODE: "1"})))
    settle(busy)
    bind_all(busy)
    settle(busy, 5)
    assert phases(busy) == ["Failed"]
    settle(busy, 10)
    assert sorted(phases(busy)) == ["Failed", "Pending"]


def test_an_evicted_pod_counts_as_failed_and_is_replaced(busy):
    busy.create(job("j"))
    settle(busy)
    bind_all(busy)
    settle(busy, 5)
    evict(busy.api, names(busy, PODS)[0], "default", {})
    settle(busy, 15)
    assert status(busy)["failed"] == 1
    assert phases(busy) == ["Pending"]


def test_a_failed_pod_is_listed_before_it_loses_its_finalizer(busy):
    busy.create(job("j"))
    settle(busy)
    bind_all(busy)
    settle(busy, 5)
    (pod,), seen = busy.api.list(PODS), []
    busy.api.store.subscribe(lambda change: seen.append(change.object))
    evict(busy.api, pod["metadata"]["name"], "default", {})
    settle(busy, 15)
    listed, found = pod["metadata"]["uid"], []
    for each in seen:
        uncounted = each.get("status", {}).get("uncountedTerminatedPods", {}).get("failed", [])
        if listed in uncounted:
            found.append("listed")
        elif each["metadata"]["uid"] == listed and not each["metadata"].get("finalizers"):
            found.append("released")
        elif each.get("status", {}).get("failed"):
            found.append("counted")
    assert list(dict.fromkeys(found)) == ["listed", "released", "counted"]


def test_a_failure_policy_can_forgive_disruptions(busy):
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    busy.create(job("j", backoffLimit=0, podFailurePolicy={"rules": [rule]}))
    for _ in range(3):
        settle(busy, 15)
        bind_all(busy)
        settle(busy, 5)
        running = [p for p in busy.api.list(PODS) if p["status"]["phase"] == "Running"]
        evict(busy.api, running[0]["metadata"]["name"], "default", {})
    settle(busy, 15)
    assert "failed" not in status(busy)
    assert conditions(busy) == {}
    assert "Pending" in phases(busy)


def test_a_failure_policy_can_fail_the_job_at_once(busy):
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    fatal = run_seconds(1, **{EXIT_CODE: "42"})
    busy.create(job("j", annotations=fatal, podFailurePolicy={"rules": [rule]}))
    settle(busy)
    bind_all(busy)
    settle(busy, 5)
    assert conditions(busy)["Failed"] == "PodFailurePolicy"


def test_suspending_takes_the_pods_away_and_resuming_brings_them_back(busy):
    busy.create(job("j", parallelism=2, completions=2, suspend=True))
    settle(busy)
    assert names(busy, PODS) == []
    assert conditions(busy) == {"Suspended": "JobSuspended"}

    def set_suspend(value):
        def change(present):
            return {**present, "spec": {**present["spec"], "suspend": value}}

        busy.api.edit(JOBS, "j", "default", change)
        settle(busy, 15)

    set_suspend(value=False)
    assert len(names(busy, PODS)) == 2
    assert conditions(busy) == {}
    set_suspend(value=True)
    assert names(busy, PODS) == []


def test_lowering_parallelism_gives_up_pods_that_do_not_run(busy):
    busy.create(job("j", parallelism=3, completions=3))
    settle(busy)
    kept = names(busy, PODS)[2]
    bind(busy.api, kept, "default", {"target": {"name": "n"}})
    settle(busy, 3)

    def change(present):
        return {**present, "spec": {**present["spec"], "parallelism": 1}}

    busy.api.edit(JOBS, "j", "default", change)
    settle(busy, 3)
    assert names(busy, PODS) == [kept]


def test_deadline_and_time_to_live(busy):
    busy.create(job("j", activeDeadlineSeconds=20, ttlSecondsAfterFinished=60))
    settle(busy)
    bind_all(busy)
    settle(busy, 25)
    assert conditions(busy)["Failed"] == "DeadlineExceeded"
    settle(busy, 60)
    assert busy.api.find(JOBS, "j", "default") is None
    assert names(busy, PODS) == []


def test_deleting_a_job_with_its_pods_or_without(busy):
    for name in ("with", "without"):
        busy.create(job(name))
    settle(busy)
    delete(busy.api, JOBS, "with", "default", DeleteOptions(policy="Background"))
    delete(busy.api, JOBS, "without", "default")
    settle(busy)
    assert names(busy, JOBS) == []
    pods = busy.api.list(PODS)
    assert [pod["metadata"]["labels"]["job-name"] for pod in pods] == ["without"]
    assert "ownerReferences" not in pods[0]["metadata"]
    assert "finalizers" not in pods[0]["metadata"]


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"pod_spec": {"restartPolicy": "Always"}}, 422),
        ({"parallelism": -1}, 422),
        ({"completionMode": "Indexed", "parallelism": 2}, 422),
        ({"successPolicy": {"rules": []}}, 501),
        ({"backoffLimitPerIndex": 1}, 501),
    ],
)
def test_what_a_job_cannot_be(busy, spec, code):
    with pytest.raises(RequestError) as caught:
        busy.create(job("j", **spec))
    assert caught.value.code == code


def test_index_lists():
    assert format_indexes({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8"
    assert list(parse_indexes("0-2,5,7-8")) == [0, 1, 2, 5, 7, 8]
    assert format_indexes(set()) == ""
    assert list(parse_indexes("")) == []


def test_a_deleted_pod_without_a_node_is_collected_and_replaced(cluster):
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    cluster.create(job("j", parallelism=1, podFailurePolicy={"rules": [rule]}))
    settle(cluster)
    [first] = names(cluster, PODS)
    delete(cluster.api, PODS, first, "default")
    settle(cluster, 30)
    [second] = names(cluster, PODS)
    assert second != first
