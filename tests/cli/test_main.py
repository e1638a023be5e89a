import errno
import importlib.metadata
import os
import runpy
import shlex
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from kai_py.cli import main
from kai_py.cli.errors import CommandError, ExitCode
from tests.support.repository import KAI_PY


def run(*arguments):
    return subprocess.run([*KAI_PY, *arguments], capture_output=True, text=True, check=False)


def run_with(monkeypatch, function, *arguments):
    """Run the command line in this process with one command that is this function."""
    monkeypatch.setattr(main, "COMMANDS", (main.Command("it", "a.module", "Does it."),))
    module, imported = SimpleNamespace(command=function), importlib.import_module

    def import_module(name, **package):
        return module if name == "a.module" else imported(name, **package)

    monkeypatch.setattr(main.importlib, "import_module", import_module)
    with pytest.raises(SystemExit) as left:
        main.main([*arguments, "it"])
    return left.value.code or 0


def test_help_lists_every_command_without_importing_any():
    code = (
        "import sys, kai_py.cli.main as m\n"
        "try: m.main(['--help'])\n"
        "finally: print([e.module for e in m.COMMANDS if e.module in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.rstrip().endswith("[]")
    for command in main.COMMANDS:
        assert (f"  {command.name} " in result.stdout) is not command.hidden
        assert (command.help in result.stdout) is not command.hidden


@pytest.mark.slow
def test_commands_start_without_what_takes_long_to_import():
    """Those that don't serve need no aiohttp, and none imports charts before it draws them."""
    serving = {"demo", "run", "top", "webhook"}
    brief = [each.module for each in main.COMMANDS if each.name not in serving]
    others = [each.module for each in main.COMMANDS if each.name in serving]
    code = (
        "import sys, kai_py.cli.lint\nprint('kai_py.planner' in sys.modules)\n"
        f"for names in {brief}, {others}:\n"
        "    for name in names: __import__(name)\n"
        "    print(*sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    lint_plans, *loaded = result.stdout.splitlines()
    for_brief, for_all = (set(each.split()) for each in loaded)
    assert lint_plans == "False"
    assert len(others) == len(serving)
    assert for_brief >= set(brief)
    assert not for_brief & {"aiohttp", "kubernetes", "lark", "rich.progress"}
    assert for_all >= set(others)
    assert "plotly" not in for_all


@pytest.mark.parametrize("command", main.COMMANDS, ids=lambda command: command.name)
def test_every_command_in_the_table_loads(command):
    result = CliRunner().invoke(main.app, [command.name, "--help"], obj=main.Invocation())
    assert result.exit_code == 0, result.output
    assert f"Usage: root {command.name}" in result.output.replace("kai-py", "root")


SAYS_NO_TABLE = {
    "crds",
    "decisions",
    "demo",
    "install",
    "manifests",
    "reserve-gpu",
    "run",
    "snapshot",
    "top",
    "webhook",
}


@pytest.mark.parametrize(
    "command",
    [each for each in main.COMMANDS if each.name not in SAYS_NO_TABLE],
    ids=lambda c: c.name,
)
def test_every_command_that_answers_does_so_as_table_or_document(command):
    shown = CliRunner().invoke(main.app, [command.name, "--help"], obj=main.Invocation()).output
    assert "-o, --output" in shown
    assert "<table|wide|json|yaml|name>" in shown


@pytest.mark.slow
def test_version_and_unknown_command_in_a_process():
    assert run("--version").stdout == f"kai-py {importlib.metadata.version('kai-py')}\n"
    wrong = run("crd")
    assert wrong.returncode == ExitCode.USAGE
    assert "Did you mean 'crds'?" in wrong.stderr


def test_an_error_is_one_line_with_its_hint(monkeypatch, capsys):
    def fail():
        raise CommandError("no cluster", hint="set KUBECONFIG", exit_code=ExitCode.CLUSTER)

    assert run_with(monkeypatch, fail) == ExitCode.CLUSTER
    assert capsys.readouterr().err == "kai-py: no cluster (set KUBECONFIG)\n"


def test_a_fault_of_ours_is_one_line_and_a_trace_on_demand(monkeypatch, capsys):
    def fault():
        raise KeyError("node-7")

    assert run_with(monkeypatch, fault) == ExitCode.INTERNAL
    assert capsys.readouterr().err == (
        "kai-py: internal error: KeyError: 'node-7' (--debug shows the trace)\n"
    )
    assert run_with(monkeypatch, fault, "--debug") == ExitCode.INTERNAL
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("kai-py qu", "queues"),
        pytest.param("kai-py run --sched", "--scheduler-name", marks=pytest.mark.slow),
    ],
)
def test_a_shell_completes_commands_and_their_options(words, offered):
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    environment = os.environ | {"_KAI_PY_COMPLETE": "complete_bash"} | asked
    result = subprocess.run(KAI_PY, capture_output=True, text=True, env=environment, check=True)
    assert result.stdout.split() == [offered]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["explain"], "Missing argument 'SUBJECT'"),
        (["explain", "widget", "x"], "'widget' is not one of gang, pod, job"),
        (["explain", "qeue/x"], "did you mean queue/x?"),
        (["explain", "train"], "write gang/train, job/train or pod/train"),
        (["gangs", "--nonsense"], "No such option: --nonsense"),
        (["queues", "-o", "xml"], "'xml' is not one of 'table', 'wide', 'json', 'yaml'"),
        (["simulate", "x", "--hours", "-1"], "--hours"),
        (["nonsense"], "No such command 'nonsense'"),
    ],
)
def test_wrong_arguments_are_one_line_with_a_hint(capsys, arguments, told):
    with pytest.raises(SystemExit) as left:
        main.main(arguments)
    assert left.value.code == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    [line] = said.err.splitlines()
    assert line.startswith("kai-py: ")
    assert told in line
    assert " -h)" in line


def test_without_arguments_the_help_is_shown(capsys):
    with pytest.raises(SystemExit) as left:
        main.main([])
    assert left.value.code == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("Usage: kai-py [OPTIONS] COMMAND")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_told_how_to_complete(shell):
    shown = subprocess.run(
        KAI_PY,
        capture_output=True,
        text=True,
        env=os.environ | {"_KAI_PY_COMPLETE": f"source_{shell}"},
        check=True,
    )
    assert "_KAI_PY_COMPLETE=complete_" + shell in shown.stdout


@pytest.mark.slow
def test_a_terminal_that_lacks_a_sign_shows_another_one():
    shown = subprocess.run(
        [*KAI_PY, "queues", "--help"],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"},
        check=True,
    )
    assert b"memory, ?" in b" ".join(shown.stdout.split())
    assert shown.stderr == b""


NESTED = ExceptionGroup("tasks", [BrokenPipeError(), ExceptionGroup("t", [BrokenPipeError()])])


@pytest.mark.parametrize("error", [BrokenPipeError(), NESTED])
def test_a_reader_that_leaves_is_neither_a_fault_nor_a_finding(
    monkeypatch, capsys, tmp_path, error
):
    def write_on():
        raise error

    monkeypatch.setattr(main.os, "dup2", lambda *_: None)
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(main.sys, "stdout", out)
        assert run_with(monkeypatch, write_on) == ExitCode.PIPE_CLOSED
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("command", ["crds", "--version", "--help"])
def test_what_is_written_at_the_end_may_have_no_reader(command):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        ended = subprocess.run([*KAI_PY, command], stdout=out, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (ExitCode.PIPE_CLOSED, b"")


@pytest.mark.slow
def test_an_interrupt_during_the_imports_leaves_no_traceback():
    interrupted = (
        "import importlib, os, signal, kai_py.__main__ as program\n"
        "imports = importlib.import_module\n"
        "def interrupt(name):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return imports(name)\n"
        "importlib.import_module = interrupt\n"
        "program.main()"
    )
    command = [sys.executable, "-c", interrupted]
    ended = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")


def test_an_interrupted_command_says_so(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    assert run_with(monkeypatch, interrupted) == ExitCode.INTERRUPTED


@pytest.mark.slow
@pytest.mark.parametrize("command", ["--version", "crds"])
def test_a_full_disk_is_told_in_a_sentence(command):
    with open("/dev/full", "w") as out:
        ended = subprocess.run([*KAI_PY, command], stdout=out, stderr=subprocess.PIPE, check=False)
    assert ended.returncode == ExitCode.USAGE
    assert ended.stderr == b"kai-py: cannot write the output: No space left on device\n"


def test_the_interpreter_does_not_complain_of_a_full_disk_again(monkeypatch):
    with open("/dev/full", "w") as out:
        monkeypatch.setattr("sys.stdout", out)
        assert run_with(monkeypatch, lambda: print("buffered until the end")) == ExitCode.USAGE


def test_a_full_disk_under_a_command_of_several_tasks_is_told(monkeypatch, capsys):
    def write():
        raise ExceptionGroup("tasks", [OSError(errno.ENOSPC, "No space left on device")])

    assert run_with(monkeypatch, write) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert told == "kai-py: cannot write the output: No space left on device\n"


@pytest.mark.slow
def test_a_message_that_cannot_be_written_changes_no_exit_code():
    with open("/dev/full", "w") as full:
        ended = subprocess.run([*KAI_PY, "lint", "/nonexistent"], stderr=full, check=False)
    assert ended.returncode == ExitCode.USAGE


def test_the_package_can_be_run(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["kai_py", "--version"])
    with pytest.raises(SystemExit) as left:
        runpy.run_module("kai_py", run_name="__main__")
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith("kai-py ")


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_output_that_is_closed_swallows_what_is_written(tmp_path, closed):
    file = tmp_path / "node.yaml"
    file.write_text("{apiVersion: v1, kind: Node, metadata: {name: n0}}\n")
    command = f"{shlex.join([*KAI_PY, 'lint', str(file)])} {closed}"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (ExitCode.OK, "")


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--http", "--svg"])
def test_what_a_demo_cannot_serve_or_write_is_told_at_once(tmp_path, option):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        picture = str(tmp_path / "nowhere" / "demo.svg")
        value = {"--http": address, "--svg": picture}[option]
        ended = run("demo", "--speed", "10", option, value)
    told = {
        "--http": f"cannot serve on {address}: Address already in use",
        "--svg": f"{picture}: No such file or directory",
    }
    assert (ended.returncode, ended.stdout) == (ExitCode.USAGE, "")
    assert ended.stderr.startswith(f"kai-py: {told[option]}")
