"""kai-py run, as far as it gets without a cluster."""

import socket

import pytest
import yaml
from typer.testing import CliRunner

from kai_py.cli import main
from kai_py.cli.errors import CommandError

NOWHERE = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
}


@pytest.mark.usefixtures("logging_as_before")
def test_a_port_that_is_taken_is_told_with_what_helps(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(NOWHERE))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        words = ["run", "--dry-run", "--kubeconfig", str(kubeconfig), "--http", address]
        result = CliRunner().invoke(main.app, words, obj=main.Invocation())
    assert isinstance(result.exception, CommandError)
    wanted = f"cannot serve on {address}: Address already in use (--http takes another"
    assert str(result.exception).startswith(wanted)
    words[-1] = "no.such.host.invalid:80"
    result = CliRunner().invoke(main.app, words, obj=main.Invocation())
    assert "Unknown error" not in str(result.exception), "that of a name has a number of its own"


def test_json_without_a_dry_run_is_refused():
    result = CliRunner().invoke(main.app, ["run", "--json"], obj=main.Invocation())
    assert "--dry-run" in str(result.exception)
