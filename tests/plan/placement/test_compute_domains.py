"""Pods that claim channels of a ComputeDomain stay within one NVLink clique."""

import pytest
from msgspec.structs import replace

from kai_py.api.records.resource import DeviceClass
from kai_py.dra.compute_domains import DRIVER, domain_id
from kai_py.plan.placement.compute_domains import CLIQUE
from kai_py.plan.plan import Action, Stage
from tests.support.records import from_json
from tests.support.scenario import (
    claim_of,
    claiming,
    cluster,
    device_slice,
    job,
    node,
    placed,
    pod,
    queue,
)

CHANNELS = f"compute-domain-default-channel.{DRIVER}"


def channel_class():
    cel = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "channel"'
    spec = {"selectors": [{"cel": {"expression": cel}}]}
    return from_json(DeviceClass, {"metadata": {"name": CHANNELS}, "spec": spec})


def rack(letter, *names):
    """Nodes of a clique, each with GPUs and its one channel."""
    for name in names:
        yield node(name, 4, labels={CLIQUE: letter})
        device = {"name": "channel-0", "attributes": {"type": {"string": "channel"}}}
        yield device_slice(name, [device], driver=DRIVER, part="channels")


def channel(name, domain_id="", *, node="", held_by=(), **config):
    """The claim of a pod on a channel of a domain, as the driver's controller templates it."""
    entries = []
    if domain_id:
        parameters = {"kind": "ComputeDomainChannelConfig", "domainID": domain_id, **config}
        opaque = {"driver": DRIVER, "parameters": parameters}
        entries.append({"requests": ["channel"], "opaque": opaque})
    return claim_of(
        name,
        {"name": "channel", "exactly": {"deviceClassName": CHANNELS}},
        owner=name,
        driver=DRIVER,
        on=[(node, "channel-0")] if node else (),
        held_by=held_by,
        config=entries,
    )


def domain(name, pods, domain_id="", gpus=1, note=None, **options):
    """A Job of pods with a channel each."""
    owner = job(name, pods, "team", **(note or {}))
    yield owner
    for i in range(pods):
        yield from worker(f"{name}-{i}", domain_id, gpus, owner=owner, **options)


def worker(name, domain_id="", gpus=1, *, node="", reserved=True, **options):
    """A pod with a channel; ``node``: where it runs."""
    yield channel(name, domain_id, node=node, held_by=[name] if reserved else ())
    yield claiming(pod(name, gpus, node=node, **options), name)


def world(*given, **settings):
    racks = [*rack("a", "n0", "n1"), *rack("b", "n2", "n3", "n4")]
    return cluster(channel_class(), queue("team", 100), *racks, *given, **settings)


def nodes_of(plan, prefix):
    return {node for name, node in placed(plan).items() if name.startswith(prefix)}


A, B = {"n0", "n1"}, {"n2", "n3", "n4"}


def test_a_gang_with_channels_takes_the_clique_that_holds_it():
    plan = world(*domain("train", 3)).plan()
    assert sorted(placed(plan).values()) == ["n2", "n3", "n4"]


def test_it_waits_for_a_clique_rather_than_lie_across_two():
    busy = [pod(f"busy-{i}", 4, queue="team", node=f"n{i}") for i in (1, 4)]
    plan = world(*busy, *domain("train", 3), actions=(Action.ALLOCATE,)).plan()
    assert placed(plan) == {}
    assert [each.stage for each in plan.unplaced] == [Stage.TOPOLOGY]


def test_a_domain_that_fits_in_no_clique_says_what_each_lacks():
    [waiting] = world(*domain("train", 4, "d1"), actions=(Action.ALLOCATE,)).plan().unplaced
    assert waiting.message == (
        "ComputeDomain d1: 4 pods with channels must be in one NVLink clique "
        "(nvidia.com/gpu.clique): b has capacity for 3 and lacks 1; "
        "a has capacity for 2 and lacks 2."
    )


def test_it_spans_cliques_where_the_user_prefers_one():
    note = {"kai.scheduler/topology-preferred-placement": CLIQUE}
    plan = world(*domain("train", 4, "d1", note=note)).plan()
    assert len(placed(plan)) == 4
    assert nodes_of(plan, "train") >= B


def test_gangs_without_channels_go_anywhere():
    owner = job("plain", 5, "team")
    pods = [pod(f"plain-{i}", 4, owner=owner) for i in range(5)]
    assert len(placed(world(owner, *pods).plan())) == 5


def test_a_launcher_without_a_channel_runs_outside_of_the_clique():
    """NVIDIA's nvbandwidth: the launcher is on the control plane, its workers have channels."""
    control = node("control", 0, labels={"node-role.kubernetes.io/control-plane": ""})
    owner = job("mpi", 4, "team")
    launcher = pod(
        "mpi-launcher", 0, owner=owner, node_selector={"node-role.kubernetes.io/control-plane": ""}
    )
    workers = [each for i in range(3) for each in worker(f"mpi-w{i}", "d1", 4, owner=owner)]
    plan = world(control, owner, launcher, *workers).plan()
    assert placed(plan)["mpi-launcher"] == "control"
    assert nodes_of(plan, "mpi-w") == B


def test_a_late_launcher_goes_where_it_wants():
    owner = job("mpi", 3, "team")
    running = [
        each for i in (0, 1) for each in worker(f"mpi-w{i}", "d1", 4, owner=owner, node=f"n{i}")
    ]
    plan = world(owner, *running, pod("mpi-launcher", 2, owner=owner)).plan()
    assert placed(plan)["mpi-launcher"] in B


def test_two_jobs_of_one_domain_share_a_clique_that_holds_both():
    plan = world(*domain("one", 1, "d1"), *domain("two", 2, "d1")).plan()
    assert nodes_of(plan, "one") | nodes_of(plan, "two") == B


def test_jobs_of_two_domains_do_not_share_channels():
    plan = world(*domain("one", 2, "d1"), *domain("two", 3, "d2")).plan()
    assert (nodes_of(plan, "one"), nodes_of(plan, "two")) == (A, B)


def test_running_pods_of_another_gang_keep_late_ones_in_their_clique():
    first = job("first", 1, "team")
    running = worker("first-0", "d1", owner=first, node="n3")
    plan = world(first, *running, *domain("late", 1, "d1")).plan()
    assert nodes_of(plan, "late") < B


@pytest.mark.parametrize(("at", "clique"), [("n3", B), ("n0", set()), ("gone", A)])
def test_the_gang_is_the_domain_where_claims_name_none(at, clique):
    owner = job("first", 3, "team")
    running = worker("first-0", "", owner=owner, node=at)
    late = [part for i in (1, 2) for part in worker(f"first-{i}", "", owner=owner)]
    plan = world(owner, *running, *late, actions=(Action.ALLOCATE,)).plan()
    assert nodes_of(plan, "first") == clique - {at}


def test_channels_that_are_being_allocated_keep_late_pods_in_their_clique():
    first = job("first", 1, "team")
    starting = worker("first-0", "d1", owner=first, node="n3", reserved=False)
    plan = world(first, *starting, *domain("late", 1, "d1")).plan()
    assert nodes_of(plan, "late") < B


def test_late_pods_wait_for_the_clique_of_those_that_run():
    first = job("first", 1, "team")
    running = worker("first-0", "d1", owner=first, node="n0")
    plan = world(first, *running, *domain("late", 2, "d1"), actions=(Action.ALLOCATE,)).plan()
    [waiting] = plan.unplaced
    assert "must be in the NVLink clique of its other pods" in waiting.message
    assert waiting.message.endswith(": a has capacity for 1 and lacks 1.")


def test_pods_that_terminate_keep_no_clique():
    first = job("first", 1, "team")
    running = worker("first-0", "d1", owner=first, node="n0", leaving=True)
    plan = world(first, *running, *domain("late", 3, "d1"), actions=(Action.ALLOCATE,)).plan()
    assert nodes_of(plan, "late") == B


def test_a_domain_of_the_same_id_in_another_namespace_is_another_one():
    foreign = list(worker("first-0", "d1", queue="team", node="n0"))
    for at, each in enumerate(foreign):
        foreign[at] = replace(each, metadata=replace(each.metadata, namespace="other"))
    plan = world(*foreign, *domain("late", 3, "d1")).plan()
    assert nodes_of(plan, "late") == B


def test_a_configuration_that_is_no_channel_names_no_domain():
    texts = ("ComputeDomainDaemonConfig", "")
    for kind in texts:
        claim = channel("x", "d1", kind=kind)
        assert not domain_id(claim.spec)
    assert domain_id(channel("x", "d1").spec) == "d1"


def test_pods_with_lower_priority_give_way_in_one_clique():
    low = [pod(f"low-{i}", 4, queue="team", node=f"n{i}") for i in range(5)]
    plan = world(*low, *domain("train", 3, "d1", priority=100, gpus=4)).plan()
    assert {each.node for each in plan.nominations} == B
    assert len(plan.evictions) == 3


def test_a_domain_that_a_clique_holds_without_the_rest_of_its_gang_says_what_that_lacks():
    busy = [pod(f"busy-{i}", 4, queue="team", node=f"n{i}") for i in (0, 1)]
    owner, *workers = domain("train", 3, "d1", gpus=4)
    owner = replace(owner, spec=replace(owner.spec, parallelism=4, completions=4))
    launcher = pod("launcher", 1, owner=owner)
    actions = (Action.ALLOCATE,)
    [waiting] = world(*busy, owner, *workers, launcher, actions=actions).plan().unplaced
    assert "b has capacity for all of them, but not with the rest of their gang" in waiting.message
    assert waiting.message.count("Insufficient nvidia.com/gpu") == 1
