"""`python -m tests.cluster [ARGUMENTS OF PYTEST]`: a Kubernetes cluster and the tests that need it.

The tests run in namespaces of their own (network, mounts, processes), and so does all that they
start: two nodes with their pods, the control plane, the broker. Nothing of it reaches the machine's
own network. However the tests end, nothing is left: with its first process, the kernel ends the
processes and mounts of a namespace.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.cluster.cluster import FOLDER_VARIABLE, IMAGES, PROGRAMS
from tests.cluster.node import GROUPS
from tests.cluster.programs import provide_images, provide_programs
from tests.support.sites.object_store import versitygw

NEEDED = ("docker", "go", "ip", "kubectl", "nft", "nsenter", "runc", "unshare")
"""In Debian: docker.io, iproute2, nftables, util-linux; runc comes with the engine."""
HIERARCHIES = Path("/sys/fs/cgroup")
SHARED = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
"""What a kubelet sets that no namespace holds."""


def main() -> int:
    """Run the tests; returns pytest's exit code."""
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        sys.exit(f"make cluster: install {', '.join(missing)}")
    if os.geteuid() != 0:
        sys.exit("make cluster: expected root, which namespaces and mounts need")
    if not (HIERARCHIES / "memory").is_dir():
        sys.exit("make cluster: expected cgroups of version 1; the nodes' settings are for those")
    programs = provide_programs()
    versitygw()
    with TemporaryDirectory(prefix="onceflow-cluster-") as folder, _restored(), _without_groups():
        (Path(folder) / IMAGES).symlink_to(provide_images(programs))
        (Path(folder) / PROGRAMS).symlink_to(programs)
        apart = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        tests = [sys.executable, "-m", "pytest", *(sys.argv[1:] or [str(Path(__file__).parent)])]
        environment = {**os.environ, FOLDER_VARIABLE: folder}
        return subprocess.call(["unshare", *apart, *tests], env=environment)


@contextmanager
def _restored() -> Iterator[None]:
    files = [Path("/proc/sys", name) for name in SHARED]
    before = [file.read_text() for file in files]
    try:
        yield
    finally:
        for file, text in zip(files, before, strict=True):
            file.write_text(text)


@contextmanager
def _without_groups() -> Iterator[None]:
    """Control groups have no namespace that would take them along: ours are removed."""
    try:
        yield
    finally:
        groups = [each for each in HIERARCHIES.glob(f"*/{GROUPS}*/**/") if each.is_dir()]
        for group in sorted(groups, reverse=True):
            with suppress(OSError):  # a process that is being killed is still in it
                group.rmdir()


if __name__ == "__main__":
    sys.exit(main())
