"""Every table must say the same, however the cluster came to be what it is.

Random changes, assumptions and withdrawals are fed to one builder; another is built from what is
there and assumed at the end. Only what is history by definition is left out: since when a gang is
below its minMember, and which of the pods that share a claim is charged with it.

Pods whose schedulerName is almost ours are reported, and no other scheduler's.
"""

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kai_py.api.problems import is_misspelling
from kai_py.api.records.core import Condition
from kai_py.dra import cluster_devices
from kai_py.grouping.grouper import Grouper
from kai_py.plan.cycle.outcome import MAX_MISNAMED
from kai_py.snapshot import builder
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.snapshot.gang_changes import NOTHING_KNOWN
from kai_py.snapshot.tables.pod_table import PodTables
from tests.snapshot.history import ALIGNED_POD, NODES, PLAIN, WAITS, history_of
from tests.support.examples import examples
from tests.support.scenario import Cluster, cluster, node, pod, queue

states = st.fixed_dictionaries(
    {
        "node": st.sampled_from(["", *NODES]),
        "phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
        "leaving": st.booleans(),
        "labels": st.sampled_from([{}, {"app": "web"}, {"pool": "other"}]),
    }
)
around = st.one_of(
    st.tuples(st.just("job"), st.sampled_from(["team", "other"])),
    st.tuples(st.just("claim"), st.sampled_from(["free", "allocated", "gone"])),
    st.tuples(st.just("volume"), st.sampled_from(["free", "claimed", "gone"])),
    st.tuples(st.just("budget"), st.sampled_from(["web", "db", "gone"])),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(["", "8000", "16000"])),
    st.tuples(st.just("node_gone"), st.sampled_from(NODES)),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("steps"), st.integers(1, 6)),
)


def events_of(numbers):
    """Events of a few pods and what is around them: of many pods hardly any meets its own past."""
    number = st.sampled_from(numbers)
    of_pods = [
        st.tuples(st.just("pod"), number, states),
        st.tuples(st.just("pod"), number, st.just(WAITS)),
        st.tuples(st.just("assume"), number, st.sampled_from(NODES)),
        st.tuples(st.just("forget"), number),
        st.tuples(st.just("nominate"), number, st.sampled_from(NODES)),
        st.tuples(st.just("evict"), number),
        st.tuples(st.just("cancel_eviction"), number),
        st.tuples(st.just("gone"), number),
    ]
    return st.lists(st.one_of(*of_pods, around), min_size=6, max_size=30)


pods = st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True)
events = pods.flatmap(events_of)


TABLES = len(tuple(SnapshotBuilder(Grouper().identify, Cluster().devices, list)._tables.pod_tables))


def shape_of(member):
    """Shapes are numbered as they come, and have labels for good once those have mattered."""
    shape = member.shape
    return shape.requests, shape.affinity, shape.claims, shape.gpu_share, shape.alignment


def member_of(member):
    return (
        member.pod,
        member.state,
        member.node,
        shape_of(member),
        member.claims,
        member.gpus,
        member.waiting_for,
        member.problem,
        member.stuck_terminating,
    )


def gang_of(gang):
    return (
        gang.queue,
        gang.problem,
        gang.succeeded,
        gang.tree,
        gang.preemptible,
        [member_of(each) for each in gang.members],
    )


def amounts(array, snapshot):
    return {
        (resource, name): round(float(array[row, column]), 6)
        for resource, row in snapshot.resources.positions.items()
        for name, column in snapshot.nodes.positions.items()
        if round(float(array[row, column]), 6)
    }


def nonzero(sums):
    return {
        (name, resource): round(amount, 6)
        for name, charges in sums.items()
        for resource, amount in charges.items()
        if round(amount, 6)
    }


def contents(snapshot):
    """Everything that the snapshot says, free of row numbers and of the order of arrival."""
    sharing = snapshot.gpu_sharing
    columns = (sharing.groups, sharing.used, sharing.releasing, sharing.remaining_pods)
    return {
        "nodes": snapshot.nodes.names,
        "used": amounts(snapshot.used, snapshot),
        "releasing": amounts(snapshot.releasing, snapshot),
        "gangs": {key: gang_of(gang) for key, gang in snapshot.gangs.items()},
        "pending": snapshot.pending,
        "allocated": nonzero(snapshot.queue_allocated),
        "requested": nonzero(snapshot.queue_requested),
        "non_preemptible": nonzero(snapshot.queue_non_preemptible),
        "claims": snapshot.devices.claims,
        "volumes": snapshot.available_volumes,
        "nominations": snapshot.nominations,
        "terminating": sorted(member.pod for member in snapshot.terminating),
        "ignored": snapshot.ignored_markers,
        "releasable": sorted(snapshot.releasable_claims),
        "group_users": snapshot.group_claim_users,
        "budgets": snapshot.budgets,
        "pod_rules": snapshot.pod_rules,
        "unreported": {
            name: sorted(map(repr, each.unreported)) for name, each in snapshot.numa.items()
        },
        "sharing": sorted(
            (snapshot.nodes.names[row], *(str(column[at]) for column in columns))
            for at, row in enumerate(sharing.rows)
        ),
    }


def same_contents(one, other):
    found, wanted = contents(one), contents(other)
    differing = {key: (found[key], wanted[key]) for key in found if found[key] != wanted[key]}
    assert differing == {}


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(events)
def test_incremental_snapshots_equal_rebuilt_ones(changes):
    history = history_of(*changes)
    same_contents(history.snapshot(), history.rebuilt())


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(events)
def test_changes_between_the_steps_of_a_snapshot_reach_it(changes):
    with mock.patch.object(builder, "STEP", 1), mock.patch.object(cluster_devices, "STEP", 1):
        history = history_of(*changes)
        same_contents(history.snapshot(), history.rebuilt())


@settings(max_examples=examples(100), deadline=None)
@given(events, st.permutations(range(TABLES)))
def test_the_order_of_the_tables_is_of_no_importance(changes, order):
    history = history_of()
    tables = history.world.builder._tables
    tables.pod_tables = PodTables(*(tuple(tables.pod_tables)[at] for at in order))
    for change, *arguments in changes:
        getattr(history, change)(*arguments)
    same_contents(history.snapshot(), history_of(*changes).snapshot())


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(events)
def test_the_gangs_that_changed_since_the_last_snapshot_are_known(changes):
    history = history_of()
    before = history.snapshot()
    for change, *arguments in changes:
        getattr(history, change)(*arguments)
        now = history.snapshot()
        known = set(now.gang_changes.between(before.gangs, now.gangs))
        compared = set(NOTHING_KNOWN.between(before.gangs, now.gangs))
        came_and_went = known - before.gangs.keys() - now.gangs.keys()
        assert known - came_and_went == compared
        every_key = before.gangs.keys() | now.gangs.keys()
        assert compared == {
            key for key in every_key if before.gangs.get(key) is not now.gangs.get(key)
        }
        before = now


def test_a_running_pod_that_is_relabelled_stays_in_its_gang_and_its_queue():
    state = {**WAITS, "node": "n0", "phase": "Running"}
    moved = {**state, "labels": {"pool": "other"}}
    snapshot = history_of(("pod", PLAIN, state), ("pod", PLAIN, moved)).snapshot()
    assert [len(each.bound) for each in snapshot.gangs.values()] == [1]
    assert snapshot.queue_allocated["team"]["gpu"] == 1
    assert amounts(snapshot.used, snapshot)["nvidia.com/gpu", "n0"] == 1, "it stays on its node"


def test_a_volume_that_was_given_and_released_is_available_again():
    given_away = [("volume", "free"), ("pod", PLAIN, WAITS), ("assume", PLAIN, "n0")]
    assert history_of(*given_away).snapshot().available_volumes == ()
    history = history_of(*given_away, ("volume", "claimed"), ("volume", "free"))
    assert [each.name for each in history.snapshot().available_volumes] == ["disk"]


def test_a_pod_on_another_node_than_assumed_takes_no_zone_of_either():
    assumed = [("pod", ALIGNED_POD, WAITS), ("assume", ALIGNED_POD, "n0")]
    numa = history_of(*assumed).snapshot().numa
    assert (len(numa["n0"].unreported), len(numa["n1"].unreported)) == (1, 0)
    elsewhere = {**WAITS, "node": "n1", "phase": "Running"}
    numa = history_of(*assumed, ("pod", ALIGNED_POD, elsewhere)).snapshot().numa
    assert not numa["n0"].unreported + numa["n1"].unreported


OURS = "kai-scheduler"


def named(scheduler, name="p", at="", answered=False):
    found = pod(name, queue="team-a")
    conditions = (Condition(type="PodScheduled", status="False"),) if answered else ()
    return replace(
        found,
        spec=replace(found.spec, scheduler_name=scheduler, node_name=at),
        status=replace(found.status, conditions=conditions),
    )


def reported(*pods):
    snapshot = cluster(node("a"), queue("team-a", 8), *pods).snapshot()
    return [each.pod.name for each in snapshot.misnamed_schedulers]


@pytest.mark.parametrize(
    "scheduler", ["kai-schedular", "kai-schedulr", "kaischeduler", "Kai-Scheduler", "kai-shceduler"]
)
def test_a_misspelt_name_is_reported_at_the_pod(scheduler):
    plan = cluster(node("a"), queue("team-a", 8), named(scheduler)).plan()
    [problem] = plan.problems
    assert problem.object.name == "p"
    assert problem.message == (
        f'no pod with spec.schedulerName "{scheduler}" was ever placed; did you mean {OURS}?'
    )


@pytest.mark.parametrize(
    "scheduler", [OURS, "default-scheduler", "aws-scheduler", "kai-scheduler-2nd", "volcano", "kai"]
)
def test_other_names_are_not(scheduler):
    assert reported(named(scheduler)) == []


def test_a_scheduler_that_placed_a_pod_or_answered_exists():
    assert reported(named("kai-schedulr")) == ["p"]
    assert reported(named("kai-schedulr"), named("kai-schedulr", "other", at="a")) == []
    assert reported(named("kai-schedulr", answered=True)) == []


def test_it_is_reported_until_it_is_gone():
    ours = cluster(node("a"), queue("team-a", 8), named("kai-schedulr"))
    elsewhere = named("kai-schedulr", "other", at="a")
    ours.add(elsewhere)
    assert ours.snapshot().misnamed_schedulers == ()
    ours.remove(elsewhere)
    assert len(ours.snapshot().misnamed_schedulers) == 1
    ours.remove(named("kai-schedulr"))
    assert ours.snapshot().misnamed_schedulers == ()


def test_events_for_it_are_bounded():
    many = [named("kai-schedulr", f"p{i:03}") for i in range(MAX_MISNAMED + 5)]
    plan = cluster(node("a"), queue("team-a", 8), *many).plan()
    assert len(plan.problems) == MAX_MISNAMED


LETTERS = st.text("abcde", min_size=5, max_size=10)


@given(LETTERS, LETTERS)
def test_being_a_misspelling_is_mutual(left, right):
    assert is_misspelling(left, right) == is_misspelling(right, left)


@given(LETTERS, st.integers(0, 8))
def test_two_letters_swapped_are_one_edit(word, at):
    swapped = word[:at] + word[at : at + 2][::-1] + word[at + 2 :]
    assert swapped == word or is_misspelling(swapped, word)
