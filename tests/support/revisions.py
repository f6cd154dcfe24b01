"""The packages of this repository as they were."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("service/onceflow", "connectors/onceflow_connectors")


@contextmanager
def packages_of(revision: str) -> Iterator[tarfile.TarFile]:
    """Open them as an archive; the revision must be in the history that is here."""
    command = ["git", "archive", revision, *PACKAGES]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(told)) as archive:
        yield archive
