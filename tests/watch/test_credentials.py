import json
import stat
import sys
from pathlib import Path

import pytest
import yaml

from kai_py.admission.certificate import issue
from kai_py.watch.credentials import Anonymous, Kubeconfig, ServiceAccount, find_credentials
from kai_py.watch.errors import CredentialsError


def kubeconfig(directory, user, *, name="config", context="one", server="http://127.0.0.1:1/"):
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}, {"name": "other", "user": {"token": "other"}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "two", "context": {"cluster": "c", "user": "other"}},
            {"name": "missing", "context": {"cluster": "c"}},
        ],
    }
    path = directory / name
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_static_token(tmp_path):
    access = Kubeconfig(kubeconfig(tmp_path, {"token": "secret"})).load()
    assert access.server == "http://127.0.0.1:1"
    assert access.authorization == "Bearer secret"
    assert access.tls is None


@pytest.mark.parametrize(("context", "header"), [("two", "Bearer other"), ("missing", "")])
def test_the_named_context_decides(tmp_path, context, header):
    config = kubeconfig(tmp_path, {"token": "secret"})
    assert Kubeconfig(config, context).load().authorization == header


def test_basic_authentication(tmp_path):
    config = kubeconfig(tmp_path, {"username": "me", "password": "x"})
    assert Kubeconfig(config).load().authorization == "Basic bWU6eA=="


def test_token_file_is_read_again(tmp_path):
    token = tmp_path / "token"
    token.write_text("first\n")
    credentials = Kubeconfig(kubeconfig(tmp_path, {"tokenFile": "token"}))
    assert credentials.load().authorization == "Bearer first"
    token.write_text("second\n")
    assert credentials.renew().authorization == "Bearer second"
    token.write_bytes(b"\xff")
    with pytest.raises(CredentialsError, match="tokenFile: is not UTF-8 text"):
        credentials.renew()
    token.unlink()
    with pytest.raises(CredentialsError, match="tokenFile"):
        credentials.renew()
    with pytest.raises(CredentialsError, match=f"config: {token}: No such file"):
        credentials.load()


@pytest.mark.parametrize(
    ("expiry", "runs"), [("2000-01-01T00:00:00Z", 3), ("2999-01-01T00:00:00Z", 1), (None, 1)]
)
def test_exec_plugin_runs_again_only_when_its_token_expires(tmp_path, expiry, runs):
    status = {"token": "from-plugin"} | ({"expirationTimestamp": expiry} if expiry else {})
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    }
    plugin = tmp_path / "plugin"
    plugin.write_text(
        f"#!{sys.executable}\nopen({str(tmp_path / 'runs')!r}, 'a').write('x')\n"
        f"print({json.dumps(answer)!r})\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {"exec": {"apiVersion": answer["apiVersion"], "command": str(plugin)}}
    credentials = Kubeconfig(kubeconfig(tmp_path, user))
    assert credentials.load().authorization == "Bearer from-plugin"
    credentials.renew()
    assert len((tmp_path / "runs").read_text()) == runs


def exec_user(plugin, script=None):
    if script is not None:
        plugin.write_text(f"#!/bin/sh\n{script}\n")
        plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": str(plugin)}}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "No such file or directory: '.*plugin'"),
        ("echo token has expired >&2; exit 1", "process returned 1. token has expired"),
        ("echo no JSON", "failed to decode process output"),
    ],
)
def test_an_exec_plugin_that_fails_is_named(tmp_path, caplog, script, reason):
    user = exec_user(tmp_path / "plugin", script)
    with pytest.raises(CredentialsError, match=f"config: the exec plugin of the user.*{reason}"):
        Kubeconfig(kubeconfig(tmp_path, user)).load()
    assert caplog.records == []


def test_an_exec_plugin_that_fails_later_cannot_renew(tmp_path):
    plugin, answer = tmp_path / "plugin", tmp_path / "answer"
    user = exec_user(plugin, f"cat {answer}")
    version, status = user["exec"]["apiVersion"], {"expirationTimestamp": "2000-01-01T00:00:00Z"}
    status["token"] = "from-plugin"
    answer.write_text(
        json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    )
    credentials = Kubeconfig(kubeconfig(tmp_path, user))
    assert credentials.load().authorization == "Bearer from-plugin"
    answer.unlink()
    with pytest.raises(CredentialsError, match="process returned 1"):
        credentials.renew()


@pytest.mark.parametrize("text", ["", "[]", "clusters: 3", "{current-context: x}", "a: [", "{"])
def test_broken_kubeconfig_names_the_file(tmp_path, text):
    path = tmp_path / "broken"
    path.write_text(text)
    with pytest.raises(CredentialsError, match="broken"):
        Kubeconfig(str(path)).load()


def test_what_is_no_kubeconfig_is_told_without_pythons_words(tmp_path):
    path = tmp_path / "text"
    path.write_text("just text")
    with pytest.raises(CredentialsError, match=r"text: is not a kubeconfig$"):
        Kubeconfig(str(path)).load()


def test_missing_kubeconfig_and_context_are_named(tmp_path):
    with pytest.raises(CredentialsError, match="absent: no such file"):
        Kubeconfig(str(tmp_path / "absent")).load()
    with pytest.raises(CredentialsError, match="three"):
        Kubeconfig(kubeconfig(tmp_path, {"token": "t"}), "three").load()


POD = {"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_certificates_that_cannot_be_read_are_no_credentials(tmp_path, text):
    authority = tmp_path / "ca.crt"
    authority.write_bytes(issue(("api.example.com",)).served)
    config = kubeconfig(tmp_path, {"token": "secret"}, server="https://127.0.0.1:1")
    document = yaml.safe_load(Path(config).read_text())
    document["clusters"][0]["cluster"]["certificate-authority"] = str(authority)
    Path(config).write_text(yaml.safe_dump(document))
    credentials = Kubeconfig(config)
    assert credentials.load().tls is not None
    if text is None:
        authority.unlink()
    else:
        authority.write_text(text)
    with pytest.raises(CredentialsError, match=r"kubeconfig .*config: .*ca\.crt"):
        credentials.renew()


def test_service_account_without_a_token_says_where_it_looked(tmp_path):
    with pytest.raises(CredentialsError, match=tmp_path.name):
        ServiceAccount(tmp_path, POD).load()


def test_order_of_sources(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    first = kubeconfig(tmp_path, {"token": "first"}, name="first")
    second = kubeconfig(tmp_path, {"token": "second"}, name="second")
    everything = {"KUBECONFIG": second, **POD}
    assert find_credentials(first, "", everything).load().authorization == "Bearer first"
    assert find_credentials("", "", everything).load().authorization == "Bearer second"
    assert isinstance(find_credentials("", "", POD), ServiceAccount)
    with pytest.raises(CredentialsError, match="name a kubeconfig"):
        find_credentials("", "", {})
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube", {"token": "home"})
    assert find_credentials("", "", {}).load().authorization == "Bearer home"


def test_anonymous_access_has_no_trailing_slash():
    assert Anonymous("http://127.0.0.1:8001/").load().server == "http://127.0.0.1:8001"


@pytest.mark.parametrize(
    ("server", "through"),
    [
        ("https://10.96.0.1", False),
        ("https://[fd00::1]:443", False),
        ("https://kubernetes.default.svc", False),
        ("https://api.example.com:6443", False),
        ("https://10.200.0.1", True),
        ("https://example.com", True),
    ],
)
def test_what_no_proxy_names_is_reached_without_a_proxy(tmp_path, monkeypatch, server, through):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "10.96.0.0/12, fd00::/8,.svc,*.example.com,nonsense/33")
    access = Kubeconfig(kubeconfig(tmp_path, {"token": "t"}, server=server)).load()
    assert bool(access.proxy) is through
