"""Settings of a scheduler process from its configuration: those of commit, and its election."""

from kai_py.api.gpu_reservation import ReservationTemplate
from kai_py.commit.claims.binding_conditions import ReadinessPolicy
from kai_py.commit.gpu_reservations import GpuDelivery
from kai_py.commit.settings import CommitSettings
from kai_py.config import Configuration, GpuIsolation, GpuSharingConfig
from kai_py.watch.client import Client
from kai_py.watch.elector import Election, Elector
from kai_py.watch.elector_thread import ElectorThread
from kai_py.watch.http_transport import HttpTransport, separate_client


def commit_settings(configuration: Configuration) -> CommitSettings:
    """The settings of commit from the configuration."""
    return CommitSettings(
        scheduler_name=configuration.scheduler_name,
        scheduler_aliases=configuration.scheduler_aliases,
        concurrency=configuration.commit.concurrency,
        queue_status_interval=configuration.commit.queue_status_interval,
        readiness=ReadinessPolicy(timeout=configuration.commit.binding_timeout),
        double_allocation=configuration.commit.double_allocation,
        max_grace=configuration.eviction.max_grace_period,
        claim_grace=configuration.commit.watch_grace,
        write_kai_statuses=configuration.kai.write_status,
        write_grove_statuses=configuration.grove.write_status,
        node_pool=configuration.node_pool.name,
        pool_label=configuration.node_pool.label,
        autoscaling=configuration.autoscaling,
        gpus=gpu_delivery(configuration.gpu_sharing),
    )


def gpu_delivery(sharing: GpuSharingConfig) -> GpuDelivery | None:
    """How shared GPUs reach containers; None where they are only accounted for."""
    if sharing.isolation is GpuIsolation.NONE:
        return None
    template = ReservationTemplate(image=sharing.image, runtime_class=sharing.runtime_class)
    return GpuDelivery(
        template=template if sharing.image else None,
        device_prefix=sharing.device_prefix,
        timeout=sharing.reservation_timeout,
    )


def elector_for(client: Client, election: Election) -> Elector | ElectorThread:
    """A candidate with a thread and a connection of its own, where ``client`` can have another."""
    transport = client.transport
    if isinstance(transport, HttpTransport):
        return ElectorThread(lambda: separate_client(client, transport), election)
    return Elector(client, election)


def election_of(configuration: Configuration, identity: str, address: str) -> Election:
    """The election for the Lease of this node pool; ``address``: as of ``Election``."""
    election, pool = configuration.leader_election, configuration.node_pool.name
    return Election(
        namespace=election.namespace,
        name=f"{election.lease}-{pool}" if pool else election.lease,
        identity=identity,
        duration=election.duration,
        renew=election.renew_deadline,
        retry=election.retry,
        address=address,
    )
