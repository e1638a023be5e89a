"""The scheduler's configuration: every setting with its meaning, its default and its limits.

This is the only place with defaults. The file (``kai-py run --config FILE``) is YAML in camelCase;
durations are written ``30s`` or ``5m``. A key that does not exist is an error at start that names
the line, the key and the nearest key that exists: a setting is never ignored silently.
"""

import enum
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from kai_py.api.autoscaling import AutoscalingConfig
from kai_py.api.choices import Profile
from kai_py.api.extensions import InstalledAction
from kai_py.api.manifests import ManifestError, line_at, read_documents
from kai_py.api.model import ApiModel, LabelValue, Name, QualifiedName
from kai_py.api.node_departures import NodeDeparturesConfig
from kai_py.api.problems import field_problems
from kai_py.api.settings import (
    EvictionConfig,
    HttpConfig,
    LogConfig,
    PlacementConfig,
    PrometheusUsage,
    WebhookConfig,
)
from kai_py.api.spot import SpotConfig
from kai_py.api.times import Duration, PositiveDuration
from kai_py.grouping.gang_settings import Preemptibility
from kai_py.grouping.rule import RuleFile as GroupingRules
from kai_py.grouping.rule_table import RuleTable

PositiveCount = Annotated[int, Field(ge=1, strict=True)]


class ConfigurationError(ValueError):
    """The configuration cannot be used; the message has one line per problem."""


class FairShareConfig(ApiModel):
    """Effect of past usage on the division of the remainder among queues."""

    half_life: PositiveDuration | None = None
    """Time after which past usage counts half; without it only current usage counts."""
    prometheus: PrometheusUsage | None = None
    """Takes past usage from Prometheus; without a half-life the whole window counts equally."""
    usage_weight: Annotated[float, Field(ge=0, le=100)] = 1.0
    """How much past usage reduces a queue's claim to the remainder; 0: not at all."""


class OrderConfig(ApiModel):
    """Order of the gangs of a queue."""

    ageing: PositiveDuration | None = None
    """Pending time that counts as one point of priority; without it pending time does not count."""
    ageing_limit: PositiveCount = 1000
    """Maximum points of priority that a gang gains by pending."""
    reserve_after: Duration = 0.0
    """Time that the largest pending gang within its queue's fair share waits before nodes are
    reserved for it as pods end, where no queue has nodes reserved by its own ``reserveAfter``; 0:
    none. Not with the ``kai`` rules."""


class BudgetsConfig(ApiModel):
    """Budgets of the searches of one cycle; a search that exhausts its budget is reported and
    repeated later."""

    victims: PositiveCount = 20_000
    """Trial placements in the searches for victims of one cycle."""
    victims_per_gang: PositiveCount = 500
    """Trial placements in the search for victims of one gang."""
    allocator_steps: PositiveCount = 20_000
    """Steps of the device allocator for one pod on one node."""
    allocator_steps_per_gang: PositiveCount = 20_000
    """Steps of the device allocator for one gang in one cycle."""
    allocator_steps_per_cycle: PositiveCount = 2_000_000
    """Steps of the device allocator in one cycle."""
    selector_cost_per_claims: PositiveCount = 2_000_000
    """Cost of evaluating the CEL selectors of the claims of one pod on all devices; claims whose
    selectors cost more stay pending. The unit is that of the API server; a million take about a
    second."""
    selector_cost_per_cycle: PositiveCount = 8_000_000
    """Cost of evaluating CEL selectors in one cycle."""
    cycle_time: PositiveDuration = 30.0
    """Processor time after which a cycle is ended with what it has decided; the gangs that
    took the most of it are set aside for a while."""


class DevicesConfig(ApiModel):
    """Dynamic Resource Allocation: what counts as a GPU and how devices are chosen."""

    gpu_drivers: tuple[Name, ...] = (
        "gpu.nvidia.com",
        "gpu.amd.com",
        "gpu.intel.com",
        "gpu.example.com",
    )
    """Drivers whose devices count as GPUs in queues."""
    gpu_classes: tuple[Name, ...] = ()
    """Further DeviceClasses whose devices count as GPUs."""
    parity: bool = False
    """Allocate exactly as kube-scheduler would: first fit instead of best fit, and a selector
    that fails on any device keeps the pod pending instead of not matching that device."""


class GpuIsolation(enum.StrEnum):
    """How containers are kept to the shared GPUs that were chosen for their pod."""

    RESERVATION_PODS = "reservation-pods"
    """A reservation pod keeps each shared GPU of a device plugin, and the admission webhook's
    environment entry gives it to the container. Pods without that entry stay pending."""
    NONE = "none"
    """They are not: shared GPUs are only accounted for."""


class GpuSharingConfig(ApiModel):
    """GPUs that pods share by annotation."""

    isolation: GpuIsolation = GpuIsolation.RESERVATION_PODS
    """How containers are kept to the shared GPUs that were chosen for their pod."""
    image: Annotated[str, Field(max_length=512)] = ""
    """Image of the reservation pods, whose entry point is kai-py; by default that of the scheduler,
    as ``kai-py install`` and the chart install it."""
    runtime_class: Annotated[str, Field(max_length=253)] = ""
    """RuntimeClass of reservation pods, and of pods with a share that name none; for example
    ``nvidia`` where NVIDIA's runtime is not the default one of the nodes."""
    device_prefix: Annotated[str, Field(max_length=253)] = ""
    """Text before each GPU's UUID in NVIDIA_VISIBLE_DEVICES: the CDI kind and ``=`` where the
    runtime is in CDI mode."""
    reservation_timeout: PositiveDuration = 40.0
    """Time for a reservation pod to start and to report its GPU."""


class DoubleAllocationPolicy(enum.StrEnum):
    """Handling of a claim of kai-py whose device another scheduler allocates too."""

    GIVE_WAY_BEFORE_START = "give-way-before-start"
    """The claim is deallocated and its pods are evicted, unless one of them has started."""
    GIVE_WAY = "give-way"
    """The claim is deallocated and its pods are evicted."""
    KEEP = "keep"
    """The claim is kept."""


class CommitConfig(ApiModel):
    """Commit of plans to the API."""

    concurrency: Annotated[int, Field(ge=1, le=1024, strict=True)] = 16
    """Maximum number of concurrent writes for one namespace; of all together a third more."""
    queue_status_interval: PositiveDuration = 5.0
    """Minimum time between two writes of a queue's status."""
    binding_timeout: PositiveDuration = 600.0
    """Timeout for drivers to make allocated devices ready (their binding conditions)."""
    double_allocation: DoubleAllocationPolicy = DoubleAllocationPolicy.GIVE_WAY_BEFORE_START
    """Handling of devices of bound pods that another scheduler allocates too."""
    watch_grace: PositiveDuration = 90.0
    """How long a watch may be silent before nothing more is decided on what it showed, and how long
    a claim stays allocated to pods that are not being bound. After 5/6 of this time a silent kind
    is listed: bookmarks come about once a minute, so below 75 s quiet kinds are listed constantly.
    """


class KindDefaultsConfig(ApiModel):
    """Defaults for workloads of a kind that use KAI's API and do not set these themselves."""

    kind: Annotated[str, Field(min_length=1, max_length=63)]
    """Kind of an owner of the pods."""
    group: Annotated[str, Field(max_length=253)] = ""
    """Its API group; empty: a kind of that name in any group."""
    priority_class: Annotated[str, Field(max_length=253)] = ""
    """PriorityClass; empty: KAI's default for the kind."""
    preemptibility: Preemptibility | None = None
    """Whether these may be evicted for others; by default if their priority is below 100."""


class KaiConfig(ApiModel):
    """The API of KAI-Scheduler, read where a cluster serves it."""

    queue_label: QualifiedName = "kai.scheduler/queue"
    """Label that names a workload's queue in KAI's way."""
    write_status: bool = True
    """Write statuses of KAI's Queues and PodGroups; off while KAI's controllers write them."""
    queue_metrics: bool = False
    """Also serve the metrics kai_queue_* of KAI-Scheduler."""
    kind_defaults: Annotated[tuple[KindDefaultsConfig, ...], Field(max_length=256)] = ()
    """Defaults by kind of the workload, as KAI reads them from a ConfigMap."""


class GroveConfig(ApiModel):
    """Grove's PodGangs, read where a cluster serves them."""

    write_status: bool = False
    """Write the conditions Scheduled and DisruptionTarget of PodGangs."""


class VolcanoConfig(ApiModel):
    """Volcano's PodGroups, read where a cluster serves them."""

    tiers: dict[str, QualifiedName] = Field(default_factory=dict, max_length=32)
    """Node label whose values are the domains of a tier of HyperNodes, by the tier's number or
    name."""


class KueueConfig(ApiModel):
    """Operation together with Kueue."""

    coexistence: bool = False
    """Kueue owns the quota, the scheduler places what Kueue admits: work that names no queue goes
    to ``defaultQueue``, or ``kueue``, which is unlimited and needs no object; nothing is reclaimed
    between queues; gangs for which Kueue chose the nodes are only checked."""


class LeaderElectionConfig(ApiModel):
    """Leader election by Lease: one replica schedules, the others are standbys."""

    enabled: bool = True
    """Whether to take the lease before scheduling."""
    lease: Name = "kai-py"
    """Name of the Lease; the node pool is appended to it."""
    namespace: Name = "kube-system"
    """Namespace of the Lease."""
    duration: PositiveDuration = 15.0
    """A standby takes over when the lease was not renewed for this long."""
    renew_deadline: PositiveDuration = 10.0
    """The leader ends its process when it could not renew for this long."""
    retry: PositiveDuration = 2.0
    """Pause between attempts to take or renew."""

    @model_validator(mode="after")
    def _in_order(self) -> "LeaderElectionConfig":
        if not self.retry < self.renew_deadline < self.duration:
            raise ValueError(
                "retry must be shorter than renewDeadline, renewDeadline than duration"
            )
        return self


class NodePoolConfig(ApiModel):
    """The part of the cluster this replica schedules."""

    label: QualifiedName = "kai.scheduler/node-pool"
    """Node label that names a node's pool."""
    name: LabelValue = ""
    """Pool to schedule: empty means the nodes without the label."""


class Configuration(ApiModel):
    """The scheduler's configuration."""

    scheduler_name: Name = "kai-scheduler"
    """Pods with this spec.schedulerName are scheduled."""
    scheduler_aliases: Annotated[tuple[Name, ...], Field(max_length=16)] = ()
    """Further values of spec.schedulerName to schedule, for example while users change over."""
    default_queue: Name | None = None
    """Queue of pods that name none; without it such pods stay pending with a message, or, under
    the ``kai`` rules, go to ``default-queue``."""
    open_queues: bool | None = None
    """Whether every namespace may use a Queue without spec.namespaces. Otherwise only those may
    that name it in their label scheduling.kai.io/queue-name. By default queues are open, except
    where ``kai-py install`` or the chart installs the scheduler."""
    rules: Profile = Profile.NATIVE
    """Rules where kai-py and KAI-Scheduler differ."""
    cycle_period: PositiveDuration = 0.1
    """Minimum time from the start of one cycle to the next; a cycle starts only after a change."""
    resync_period: PositiveDuration = 300.0
    """Maximum time without a full cycle, even without a change."""
    node_pool: NodePoolConfig = NodePoolConfig()
    """The part of the cluster this replica schedules."""
    placement: PlacementConfig = PlacementConfig()
    """Choice of nodes."""
    fair_share: FairShareConfig = FairShareConfig()
    """Effect of past usage on fair shares."""
    order: OrderConfig = OrderConfig()
    """Order of the gangs of a queue."""
    eviction: EvictionConfig = EvictionConfig()
    """When running pods may be relocated or evicted for others."""
    node_departures: NodeDeparturesConfig = NodeDeparturesConfig()
    """Nodes that are about to go."""
    spot: SpotConfig = SpotConfig()
    """Spot nodes."""
    extra_actions: Annotated[tuple[InstalledAction, ...], Field(max_length=16)] = ()
    """Installed actions that run in each cycle after ``allocate`` and before pods are evicted."""
    budgets: BudgetsConfig = BudgetsConfig()
    """Budgets of the searches."""
    devices: DevicesConfig = DevicesConfig()
    """What counts as a GPU, how devices are chosen."""
    gpu_sharing: GpuSharingConfig = GpuSharingConfig()
    """GPUs that pods share by annotation."""
    commit: CommitConfig = CommitConfig()
    """Commit of plans."""
    grouping: GroupingRules = GroupingRules()
    """Rules that group pods by their owners; they take precedence over the built-in ones."""
    leader_election: LeaderElectionConfig = LeaderElectionConfig()
    """Leader election by Lease: one replica schedules, the others are standbys."""
    kai: KaiConfig = KaiConfig()
    """The API of KAI-Scheduler."""
    grove: GroveConfig = GroveConfig()
    """The API of Grove."""
    volcano: VolcanoConfig = VolcanoConfig()
    """The API of Volcano."""
    kueue: KueueConfig = KueueConfig()
    """Operation together with Kueue."""
    autoscaling: AutoscalingConfig = AutoscalingConfig()
    """How pending work triggers scale-ups."""
    http: HttpConfig = HttpConfig()
    """Where metrics and health are served."""
    webhook: WebhookConfig = WebhookConfig()
    """Defaults and checks before objects are stored."""
    log: LogConfig = LogConfig()
    """Logging."""

    @model_validator(mode="after")
    def _grouping_is_known(self) -> "Configuration":
        RuleTable(self.grouping)
        return self


def read_configuration(path: Path) -> Configuration:
    """Read a configuration file; an empty one means every default. Raises ConfigurationError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigurationError(f"{path}: {reason}") from None
    return parse_configuration(text, name=str(path))


def parse_configuration(text: str, *, name: str = "configuration") -> Configuration:
    """Read a configuration text; problems say ``name:line: key: what is wrong``."""
    try:
        documents = read_documents(text)
    except ManifestError as error:
        raise ConfigurationError(f"{name}:{error.line}: {error.reason}") from None
    if len(documents) > 1:
        line = documents[1].node.start_mark.line + 1
        raise ConfigurationError(f"{name}:{line}: one document is expected, this is the second")
    if not documents:
        return Configuration()
    value, repeated = documents[0].value, documents[0].repeated_keys
    found = [(line, f"{key}: is set twice") for line, key in repeated]
    try:
        configuration = Configuration.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = field_problems(error, Configuration)
        found += [(line_at(value, problem.path), str(problem)) for problem in problems]
    if found:
        raise ConfigurationError("\n".join(f"{name}:{line}: {it}" for line, it in sorted(found)))
    return configuration
