"""Kubeconfig for the embedded cluster, without credentials."""

from __future__ import annotations

import yaml

CONTEXT = "kai-py-embedded"


def kubeconfig(url: str, *, namespace: str = "default") -> str:
    """Return the text of a kubeconfig whose only context is the server at `url`."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": {"server": url}}],
        "users": [{"name": CONTEXT, "user": {}}],
        "contexts": [
            {
                "name": CONTEXT,
                "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": namespace},
            }
        ],
        "current-context": CONTEXT,
    }
    text: str = yaml.safe_dump(document, sort_keys=False)
    return text
