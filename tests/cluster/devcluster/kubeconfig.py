"""Kubeconfigs with their keys inside, so that one file can be handed on or copied.

Written as JSON, which every reader of kubeconfigs takes, as it is YAML too.
"""

import base64
import json
import os
from pathlib import Path

CONTEXT = "lanekeeper"


def text(server: str, authority: Path, certificate: Path, key: Path) -> str:
    """The kubeconfig of one identity."""
    cluster = {"server": server, "certificate-authority-data": _encoded(authority)}
    user = {"client-certificate-data": _encoded(certificate), "client-key-data": _encoded(key)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": CONTEXT, "user": user}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
        "current-context": CONTEXT,
    }
    return json.dumps(document, indent=2) + "\n"


def write(file: Path, content: str) -> None:
    """Writes a kubeconfig that only its owner can read."""
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as handle:
        handle.write(content)


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
