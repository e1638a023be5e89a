"""Container images without a registry: busybox of this machine, as `docker save` writes them."""

import hashlib
import io
import json
import platform
import shutil
import tarfile
from pathlib import Path

IMAGE = "kai.test/busybox:1"
PAUSE = "kai.test/pause:1"
RESERVATION = "kai.test/kai-py:1"
"""For reservation pods: prints which GPU it was given; the tests write that to the API server."""
APPLETS = ("sh", "sleep", "env", "echo", "cat", "true", "false", "kill", "test")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


_TELL_GPU = b"""#!/bin/sh
echo "$NVIDIA_VISIBLE_DEVICES"
trap 'exit 0' TERM
while true; do sleep 0.1; done
"""


def write_images(path: Path) -> None:
    """Write the images; containers of the first two that name no command sleep forever."""
    layer = _layer()
    sleeping = _config(layer, Cmd=["/bin/sleep", "2147483647"])
    telling = _config(layer, Entrypoint=["/bin/kai-py"])
    manifest = []
    with tarfile.open(path, "w") as archive:
        _add(archive, "layer.tar", layer)
        for config, tags in ((sleeping, [IMAGE, PAUSE]), (telling, [RESERVATION])):
            name = f"{_digest(config)}.json"
            _add(archive, name, config)
            manifest.append({"Config": name, "RepoTags": tags, "Layers": ["layer.tar"]})
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _config(layer: bytes, **run: list[str]) -> bytes:
    document = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], **run},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer)}"]},
    }
    return json.dumps(document).encode()


def _layer() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for directory in ("bin", "tmp", "etc"):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if directory == "tmp" else 0o755
            archive.addfile(entry)
        busybox = shutil.which("busybox")
        assert busybox, "no busybox"
        _add(archive, "bin/busybox", Path(busybox).read_bytes())
        _add(archive, "bin/kai-py", _TELL_GPU)
        for applet in APPLETS:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(entry)
    return content.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o755
    archive.addfile(entry, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
