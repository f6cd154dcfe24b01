"""The programs and images of a Kubernetes cluster, built here: no package index has them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from tarfile import TarFile, TarInfo

from rich.console import Console

from onceflow.devkit.paths import cache_dir
from tests.support.brokers import image as kafka_container

SOURCES = Path(__file__).parent / "go"
BUILD_TIMEOUT_S = 3600
IMAGE_TIMEOUT_S = 300
KUBELET = "kube"
"""The only one that is built as its makers do with cgo; the others run in any image."""
KUBERNETES = re.search(r"k8s\.io/kubernetes (v\S+)", (SOURCES / "kube" / "go.mod").read_text())
SERVICE_IMAGE, BROKER_IMAGE, PAUSE_IMAGE = (
    f"onceflow.test/{name}:test" for name in ("onceflow", "broker", "pause")
)
"""With a registry in their names, or a node would look for them at Docker's."""
NEXT_TAG = "next"
"""The image of the service is there under this tag, too."""


def provide_programs() -> Path:
    """A folder with all of them; built if these sources never were, which takes some 15 minutes.

    Go keeps the modules that it downloads, 8 GB, in its own caches.
    """
    assert shutil.which("go"), "install Go 1.26.6 or newer"
    content = hashlib.sha256()
    for file in sorted(each for each in SOURCES.rglob("*") if each.is_file()):
        content.update(file.read_bytes())
    folder = cache_dir() / f"cluster-{content.hexdigest()[:12]}"
    if not folder.is_dir():
        unfinished = folder.with_suffix(".unfinished")
        unfinished.mkdir(parents=True, exist_ok=True)
        for name, flags in _builds().items():
            Console(stderr=True).print(f"building {name} ...")
            subprocess.run(
                ["go", "build", "-o", f"{unfinished}/", *flags],
                cwd=SOURCES / name,
                env={**os.environ, **({} if name == KUBELET else {"CGO_ENABLED": "0"})},
                check=True,
                timeout=BUILD_TIMEOUT_S,
            )
        unfinished.replace(folder)
    return folder


def _builds() -> Mapping[str, Sequence[str]]:
    assert KUBERNETES is not None
    version = f"-X k8s.io/component-base/version.gitVersion={KUBERNETES[1]}"
    return {
        KUBELET: [f"-ldflags=-s -w {version}", "."],
        "runtime": ["-ldflags=-s -w", "-tags=no_btrfs no_zfs no_devmapper", "tool"],
        "dns": ["-ldflags=-s -w", "tool"],
        "pause": ["-ldflags=-s -w", "."],
    }


def provide_images(programs: Path) -> Path:
    """A tar with the images of the service, of the test broker and of `pause`, for nodes to import.

    It has 1.4 GB and is written again only if one of them has changed.
    """
    kafka_container.provide_image()
    upgrade = SERVICE_IMAGE.replace(":test", f":{NEXT_TAG}")
    for name in (SERVICE_IMAGE, upgrade):
        _docker("tag", "onceflow", name)
    _docker("tag", kafka_container.image_tag(), BROKER_IMAGE)
    pause = PAUSE_IMAGE.replace(":test", f":{programs.name}")
    if not _docker("image", "ls", "--quiet", pause):
        changes = ['--change=ENTRYPOINT ["/pause"]', "--change=USER 65535:65535"]
        _docker("import", *changes, "-", pause, content=_tar_of(programs / "pause"))
    _docker("tag", pause, PAUSE_IMAGE)
    names = [SERVICE_IMAGE, upgrade, BROKER_IMAGE, PAUSE_IMAGE]
    ids = _docker("image", "inspect", "--format", "{{.Id}}", *names)
    tar = cache_dir() / f"cluster-images-{hashlib.sha256(ids).hexdigest()[:12]}.tar"
    if not tar.is_file():
        for other in cache_dir().glob("cluster-images-*"):
            other.unlink()
        unfinished = tar.with_suffix(".unfinished")
        _docker("save", "--output", str(unfinished), *names)
        unfinished.replace(tar)
    return tar


def _docker(*arguments: str, content: bytes | None = None) -> bytes:
    command = ["docker", *arguments]
    done = subprocess.run(
        command, input=content, stdout=subprocess.PIPE, check=True, timeout=IMAGE_TIMEOUT_S
    )
    return done.stdout


def _tar_of(program: Path) -> bytes:
    info = TarInfo(program.name)
    info.size, info.mode = program.stat().st_size, 0o755
    with BytesIO() as buffer:
        with TarFile(mode="w", fileobj=buffer) as tar, program.open("rb") as file:
            tar.addfile(info, file)
        return buffer.getvalue()
