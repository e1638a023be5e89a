import pytest

from kai_py.api.settings import LogFormat
from kai_py.cli import main
from kai_py.cli.configuration import with_options
from kai_py.cli.errors import CommandError
from kai_py.config import Configuration, parse_configuration


def test_options_win_over_the_file_and_leave_the_rest_alone():
    written = parse_configuration("log: {level: debug}\ncyclePeriod: 250ms\nhttp: {port: 9}")
    options = {"log": {"format": LogFormat.JSON}, "http": {"port": None}, "schedulerName": "mine"}
    merged = with_options(written, options)
    assert merged.log.format is LogFormat.JSON
    assert (merged.log.level.value, merged.cycle_period, merged.http.port) == ("debug", 0.25, 9)
    assert merged.scheduler_name == "mine"


def test_no_options_change_nothing():
    assert with_options(Configuration(), {}) == Configuration()


@pytest.mark.parametrize("period", ["0.1ms", "1500.5us", "1h0.25ms", "100ms"])
def test_parts_of_a_millisecond_survive_options(period):
    """They became 0, which no configuration may have, and the error named no line."""
    written = parse_configuration(f"cyclePeriod: {period}")
    merged = with_options(written, {"http": {"port": 1}})
    assert merged.cycle_period == pytest.approx(written.cycle_period)


def test_an_option_is_checked_like_the_file():
    with pytest.raises(CommandError, match=r"^schedulerName: "):
        with_options(Configuration(), {"schedulerName": "Not A Name"})


COMMANDS = [
    ["run"],
    ["queues"],
    ["gangs"],
    ["devices"],
    ["explain", "gang", "default/Job/train"],
    ["what-if", "--drain", "node-0"],
    ["replay", "snapshot.zip"],
    ["manifests", "--image", "kai-py"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_tells_a_wrong_configuration_first_and_in_one_line(command, tmp_path, capsys):
    path = tmp_path / "kai.yaml"
    path.write_text("cyclePeriod: 1s\nschedulername: mine\n")
    with pytest.raises(SystemExit, match="2"):
        main.main([*command, "--config", str(path)])
    expected = f"kai-py: {path}:2: schedulername: no such field; did you mean schedulerName?\n"
    assert capsys.readouterr().err == expected
