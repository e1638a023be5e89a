"""How do clients reach the API server: its certificate, the kubeconfig, and a probe of it."""

import base64
import json
import ssl
import urllib.request
from pathlib import Path

from kai_py.admission.certificate import issue
from tests.support.patience import patience


def write_certificate(certificate: Path, key: Path) -> None:
    """Write a certificate that is its own authority, with a key of an elliptic curve.

    With the RSA key that kube-apiserver makes for itself, signing for new connections is an eighth
    of the processor time it takes in tests.
    """
    certificate.parent.mkdir(parents=True, exist_ok=True)
    issued = issue(["127.0.0.1", "localhost", "kubernetes.default.svc"])
    key.touch(mode=0o600)
    key.write_bytes(issued.key)
    certificate.write_bytes(issued.served)


def write_kubeconfig(path: Path, url: str, token: str, authority: Path) -> None:
    """Write a kubeconfig that needs no other file: certificate authority and token inside."""
    encoded = base64.b64encode(authority.read_bytes()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "clusters": [
            {"name": "test", "cluster": {"server": url, "certificate-authority-data": encoded}}
        ],
        "users": [{"name": "admin", "user": {"token": token}}],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=2))


def answers(url: str, token: str | None = None) -> bool:
    """Say whether `url` answers 200 soon, whatever its certificate."""
    request = urllib.request.Request(url)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # No proxy: the environment may name one that does not serve loopback.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(request, timeout=patience(2.0)) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
