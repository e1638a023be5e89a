"""A Job survives no more evictions than it does by what its controller will count."""

from collections import deque

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.api.records.job import UncountedTerminatedPods
from kai_py.plan.victims.survival import exceeded_limit
from kai_py.snapshot.gangs import PodState
from tests.support.scenario import at, cluster, job, node, pod, queue

FINALIZER = "batch.kubernetes.io/job-tracking"
LIMIT, LOST, STAYING = 6, 3, 5
"""backoffLimit; pods that may fail, and pods that run on."""


class Server:
    """A Job and its pods as the API server has them; changes reach the builder when delivered."""

    def __init__(self) -> None:
        made = job("train", LOST + STAYING, "team")
        self.job = replace(made, spec=replace(made.spec, backoff_limit=LIMIT))
        self.pods = {f"p{n}": self._pod(f"p{n}") for n in range(LOST + STAYING)}
        self.watches = {"pods": deque(), "jobs": deque()}
        self.world = cluster(node("n", 64), queue("team", 64), self.job, list(self.pods.values()))
        self.ended: set[str] = set()

    def _pod(self, name):
        made = pod(name, node="n", owner=self.job)
        meta = replace(made.metadata, finalizers=(FINALIZER,))
        return replace(made, metadata=meta)

    def _write(self, kind, old, new):
        """Store `new`; None: delete."""
        self.watches[kind].append((old, new))
        return new

    def _write_pod(self, name, **meta):
        old = self.pods[name]
        self.pods[name] = self._write(
            "pods", old, replace(old, metadata=replace(old.metadata, **meta))
        )

    def delete(self, name):
        """Delete a pod: it is terminating until its containers have ended."""
        if name in self.pods and not self.pods[name].metadata.deletion_timestamp:
            self._write_pod(name, deletion_timestamp=at(1000))

    def end(self, name):
        """The kubelet has ended a pod that is terminating: it is failed, and gone if it may."""
        if self._is_terminating(name):
            old = self.pods[name]
            status = replace(old.status, phase="Failed")
            self.pods[name] = self._write("pods", old, replace(old, status=status))
            self.vanish(name)

    def vanish(self, name):
        """A pod that is terminating is gone with its node, once it has no finalizer."""
        if self._is_terminating(name):
            self.ended.add(name)
            self._collect(name)

    def _is_terminating(self, name):
        terminating = name in self.pods and self.pods[name].metadata.deletion_timestamp
        return terminating and name not in self.ended

    def _collect(self, name):
        old = self.pods[name]
        if name in self.ended and not old.metadata.finalizers:
            self._write("pods", old, None)
            del self.pods[name]

    def _write_status(self, **fields):
        status = replace(self.job.status, **fields)
        self.job = self._write("jobs", self.job, replace(self.job, status=status))

    def list_failed(self):
        """The controller lists the pods that failed and have its finalizer."""
        listed = dict.fromkeys(self.job.status.uncounted_terminated_pods.failed)
        for each in self.pods.values():
            if each.metadata.deletion_timestamp and each.metadata.finalizers:
                listed[each.metadata.uid] = None
        self._write_status(uncounted_terminated_pods=UncountedTerminatedPods(tuple(listed)))

    def release(self):
        """It takes its finalizer from those that it listed."""
        for name, each in list(self.pods.items()):
            listed = self.job.status.uncounted_terminated_pods.failed
            if each.metadata.uid in listed and each.metadata.finalizers:
                self._write_pod(name, finalizers=())
                self._collect(name)

    def count(self):
        """It counts those of the listed that it has released."""
        tracked = {each.metadata.uid for each in self.pods.values() if each.metadata.finalizers}
        listed = self.job.status.uncounted_terminated_pods.failed
        counted = [uid for uid in listed if uid not in tracked]
        left = tuple(uid for uid in listed if uid in tracked)
        self._write_status(
            failed=self.job.status.failed + len(counted),
            uncounted_terminated_pods=UncountedTerminatedPods(left),
        )

    def touch(self):
        """Another field of the status changes."""
        self._write_status(active=self.job.status.active + 1)

    def deliver(self, kind):
        """The next event of a watch arrives."""
        if self.watches[kind]:
            self.world.builder.apply(kind, *self.watches[kind].popleft())

    def survived(self, after=0):
        """How many more pods the Job survives the loss of, by the snapshot some seconds later."""
        (gang,) = self.world.snapshot(1000.0 + after).gangs.values()
        bound = [each for each in gang.members if each.state is PodState.BOUND]
        survived = [n for n in range(len(bound) + 1) if exceeded_limit(gang, bound[:n]) is None]
        return max(survived)

    def seen_to_fail(self):
        """How many pods are lost by what the watch of pods has delivered."""
        ahead = {old.metadata.uid for old, _ in self.watches["pods"]}
        fine = {
            each.metadata.uid for each in self.pods.values() if not each.metadata.deletion_timestamp
        }
        return len({f"pod-p{n}" for n in range(LOST)} - ahead - fine)


NAMES_OF_LOST = [f"p{n}" for n in range(LOST)]
NAMES = st.sampled_from(NAMES_OF_LOST)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["delete", "end", "vanish"]), NAMES),
    st.tuples(st.sampled_from(["list_failed", "release", "count", "touch"])),
    st.tuples(st.just("deliver"), st.sampled_from(["pods", "jobs"])),
)
COURSE = [("delete", "p0"), ("list_failed",), ("release",), ("end", "p0"), ("count",)]
SUDDEN = [("delete", "p0"), ("list_failed",), ("release",), ("vanish", "p0"), ("count",)]


@example([*SUDDEN, *[("deliver", "pods")] * 9])
@example([*COURSE, *[("deliver", "pods")] * 9])
@example([*COURSE, ("touch",), *[("deliver", "jobs")] * 9])
@example([("delete", "p0"), ("vanish", "p0")])
@example([("touch",), ("delete", "p0"), ("deliver", "jobs"), ("end", "p0"), ("deliver", "pods")])
@given(st.lists(STEPS, max_size=40))
def test_no_failed_pod_is_forgotten_and_none_is_counted_for_ever(steps):
    server = Server()
    for name, *arguments in steps:
        getattr(server, name)(*arguments)
        if name == "deliver":
            assert server.survived() <= LIMIT - server.seen_to_fail()
    for name in NAMES_OF_LOST:
        server.delete(name)
        server.end(name)
    server.list_failed()
    for step in (server.release, server.count):
        step()
        for kind in ("pods", "jobs"):
            while server.watches[kind]:
                server.deliver(kind)
                assert server.survived() <= LIMIT - server.seen_to_fail()
        assert server.survived() == LIMIT - LOST
    (gang,) = server.world.snapshot().gangs.values()
    assert not gang.uncounted_failures


def test_a_pod_that_is_never_listed_counts_for_a_minute():
    """The controller takes its finalizer from pods that it deletes to scale a Job down."""
    server = Server()
    server._write_pod("p0", finalizers=(), deletion_timestamp=at(1000))
    server.vanish("p0")
    for _ in range(2):
        server.deliver("pods")
    assert server.survived() == LIMIT - 1
    assert server.survived(after=59) == LIMIT - 1
    assert server.survived(after=61) == LIMIT


def test_the_pods_of_a_suspended_job_do_not_count_as_failures():
    server = Server()
    running = server.job
    for suspend, lost in ((True, 0), (False, 1)):
        server.job = replace(running, spec=replace(running.spec, suspend=suspend))
        server.world.add(server.job)
        name = f"p{lost}"
        server._write_pod(name, finalizers=(), deletion_timestamp=at(1000))
        server.vanish(name)
        while server.watches["pods"]:
            server.deliver("pods")
        assert server.survived() == LIMIT - lost
