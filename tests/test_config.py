import pytest

from kai_py.api.choices import FillStrategy
from kai_py.config import Configuration, ConfigurationError, parse_configuration, read_configuration


def refused(text):
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(text, name="kai.yaml")
    return str(caught.value).splitlines()


@pytest.mark.parametrize("text", ["", "---\n", "# nothing yet\n", "{}\n"])
def test_an_empty_file_means_every_default(text):
    assert parse_configuration(text) == Configuration()


def test_defaults_that_others_rely_on():
    configuration = Configuration()
    assert configuration.scheduler_name == "kai-scheduler"
    assert configuration.commit.concurrency == 16
    assert configuration.placement.gpu is FillStrategy.BINPACK
    assert configuration.default_queue is None
    assert "gpu.nvidia.com" in configuration.devices.gpu_drivers


def test_reads_what_the_defaults_are_written_as():
    written = Configuration().model_dump_json(by_alias=True)
    assert parse_configuration(written) == Configuration()


def test_settings_are_taken():
    configuration = parse_configuration(
        "schedulerName: gpus\nrules: kai\nplacement: {gpu: spread}\n"
        "eviction:\n  stalenessGrace: 2m\n  preempt: false\ncyclePeriod: 1s\n"
        "devices: {gpuDrivers: [gpu.example.com]}\n"
    )
    assert configuration.scheduler_name == "gpus"
    assert configuration.placement.gpu is FillStrategy.SPREAD
    assert configuration.placement.cpu is FillStrategy.BINPACK
    assert configuration.eviction.staleness_grace == 120
    assert not configuration.eviction.preempt
    assert configuration.devices.gpu_drivers == ("gpu.example.com",)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("schedulrName: x", "kai.yaml:1: schedulrName: no such field; did you mean schedulerName?"),
        ("scheduler_name: x", "kai.yaml:1: scheduler_name: no such field; did you mean schedulerN"),
        ("\n\nhttp:\n  prot: 1", "kai.yaml:4: http.prot: no such field; did you mean port?"),
        ("http: {zzz: 1}", "kai.yaml:1: http.zzz: no such field; known are host, port"),
        ("commit: {concurrency: 0}", "kai.yaml:1: commit.concurrency: must be greater"),
        (
            "placement: {strategy: frugl}",
            "kai.yaml:1: placement.strategy: there is no score frugl; did you mean frugal?",
        ),
        (
            "placement: {strategy: packing}",
            "kai.yaml:1: placement.strategy: there is no score packing; known are best-fit, fgd, f",
        ),
        ("placement: {gpu: binpak}", "kai.yaml:1: placement.gpu: must be 'binpack' or"),
        ("nodePool: pool-a", "kai.yaml:1: nodePool: must be a mapping of fields"),
        ("[]", "kai.yaml:1: must be a mapping of fields"),
        ('nodePool: {label: "pool\\n"}', "kai.yaml:1: nodePool.label: must be a label key"),
        ("nodePool: {name: pool a}", "kai.yaml:1: nodePool.name: must be letters, digits, -, _"),
        ("kai: {queueLabel: /queue}", "kai.yaml:1: kai.queueLabel: must be a label key"),
        ("leaderElection: {lease: A}", "kai.yaml:1: leaderElection.lease: must be lower-case"),
        ("cyclePeriod: 1 second", "kai.yaml:1: cyclePeriod: '1 second' is not a duration"),
        ("leaderElection: {duration: 5s}", "kai.yaml:1: leaderElection: retry must be shorter"),
        (
            "fairShare: {prometheus: {url: x}}",
            "kai.yaml:1: fairShare.prometheus.url: must begin with http:// or https://",
        ),
        ("http: {tokenFile: 5}", "kai.yaml:1: http.tokenFile: must be the path of a file"),
        ("defaultQueue: 5", "kai.yaml:1: defaultQueue: must be a text"),
        ("schedulerName: ''", "kai.yaml:1: schedulerName: must have at least 1 character"),
        ("budgets: {victims: 1.5}", "kai.yaml:1: budgets.victims: must be a whole number"),
        ("eviction: {preempt: maybe}", "kai.yaml:1: eviction.preempt: must be true or false"),
        (
            "autoscaling: {nodeGroups: [{name: a}, {name: b}, {name: a}]}",
            "kai.yaml:1: autoscaling: nodeGroups has two groups named a: rename one",
        ),
        (
            "fairShare: {prometheus: {url: http://p, window: {type: cron}}}",
            "kai.yaml:1: fairShare.prometheus.window: cron belongs to type",
        ),
        (
            "fairShare: {prometheus: {url: http://p, window: {type: cron, cron: 0 0 * *}}}",
            'kai.yaml:1: fairShare.prometheus.window: "0 0 * *" must have five fields',
        ),
        ("a: [", "kai.yaml:1: "),
        ("log: {}\nlog: {}", "kai.yaml:2: log: is set twice"),
        ("log: {}\n---\nlog: {}", "kai.yaml:3: one document is expected"),
    ],
)
def test_w17_a_problem_names_file_line_and_key(text, line):
    assert refused(text)[0].startswith(line)


def test_every_problem_is_told_in_the_order_of_the_file():
    lines = refused("http: {port: -1}\nlog: {level: loud}\nrulez: kai\n")
    assert [line.split(":")[1] for line in lines] == ["1", "2", "3"]


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"none\.yaml: No such file"):
        read_configuration(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"schedulerName: \xff")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        read_configuration(tmp_path / "latin.yaml")
    (tmp_path / "good.yaml").write_text("defaultQueue: all\n")
    assert read_configuration(tmp_path / "good.yaml").default_queue == "all"
