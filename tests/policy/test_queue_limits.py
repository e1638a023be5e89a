import numpy as np
import pytest

from kai_py.policy.queue_limits import check_limits
from kai_py.policy.queue_usage import QueueUsage, QuotaBound
from kai_py.snapshot.tables.queue_tree import build_queue_table
from kai_py.snapshot.tables.queues import QueueInfo

RESOURCES = ("cpu", "memory", "gpu")


def stand(specs, allocated=None, non_preemptible=None):
    """Standing of queues that hold ``{name: {resource: amount}}`` of their own."""
    table = build_queue_table(specs, RESOURCES)[0]

    def held(by_queue):
        own = np.zeros((len(RESOURCES), len(table)))
        for name, row in (by_queue or {}).items():
            for resource, amount in row.items():
                own[RESOURCES.index(resource), table.positions[name]] = amount
        return table.subtree_sums(own)

    none = np.zeros((len(RESOURCES), len(table)))
    total = np.zeros(len(RESOURCES))
    return QueueUsage(table, total, held(allocated), held(non_preemptible), none)


def ask(**amounts):
    return np.array([float(amounts.get(name, 0)) for name in RESOURCES])


PARENT = QueueInfo(name="dept", max={"gpu": 10}, deserved={"gpu": 6, "cpu": 8000})
CHILD = QueueInfo(name="team", parent="dept", max={"gpu": 8}, deserved={"gpu": 6, "cpu": 9000})
SIBLING = QueueInfo(name="other", parent="dept")


def check(standing, request, *, preemptible=True):
    team = standing.queues.positions["team"]
    return check_limits(standing, team, request, preemptible=preemptible)


def test_the_nearest_queue_that_refuses_is_named():
    standing = stand([PARENT, CHILD, SIBLING], {"team": {"gpu": 6}, "other": {"gpu": 3}})
    assert check(standing, ask(gpu=1)) is None
    refused = check(standing, ask(gpu=2))
    assert (refused.bound, refused.queue) == (QuotaBound.MAX, "dept")
    assert (refused.limit, refused.allocated, refused.requested) == (10, 9, 2)
    assert check(standing, ask(gpu=3)).queue == "team"


def test_resources_not_asked_for_do_not_refuse():
    standing = stand([PARENT, CHILD], {"team": {"gpu": 11}})
    assert check(standing, ask(cpu=1)) is None


def test_non_preemptible_work_stays_within_deserved_at_every_level():
    specs = [PARENT, CHILD, SIBLING]
    standing = stand(specs, {"team": {"gpu": 2}}, {"team": {"gpu": 2}, "other": {"gpu": 3}})
    assert check(standing, ask(gpu=2)) is None
    refused = check(standing, ask(gpu=2), preemptible=False)
    assert (refused.bound, refused.queue, refused.allocated) == (QuotaBound.DESERVED, "dept", 5)


def test_sums_of_fractions_are_not_refused_for_float_noise():
    team = QueueInfo(name="team", max={"gpu": 0.3})
    standing = stand([team], {"team": {"gpu": 0.1 + 0.1}})
    assert 0.1 + 0.1 + 0.1 > 0.3
    assert check(standing, ask(gpu=0.1)) is None
    assert check(standing, ask(gpu=0.11)) is not None


@pytest.mark.parametrize(
    ("request_", "preemptible", "resource", "text"),
    [
        (
            ask(gpu=9),
            True,
            "nvidia.com/gpu",
            "team quota has reached the allowable limit of GPUs. Limit is 8 GPUs, currently 1 GPUs "
            "allocated and workload requested 9 GPUs",
        ),
        (
            ask(cpu=8500),
            False,
            "cpu",
            "Non-preemptible workload is over quota. Workload requested 8.5 CPU cores, but dept "
            "quota is 8 CPU cores, while 0 CPU cores are already allocated for non-preemptible "
            "pods. Use a preemptible workload to go over quota.",
        ),
    ],
)
def test_messages_keep_the_known_shape(request_, preemptible, resource, text):
    standing = stand([PARENT, CHILD], {"team": {"gpu": 1}})
    refused = check(standing, request_, preemptible=preemptible)
    assert refused.message(resource) == text
