"""On which disk a checkpoint lies, by real lines of `/proc/self/mountinfo`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from onceflow.errors import ConfigError
from onceflow.pipeline.file.policies import CheckpointWaiver
from onceflow.protocol.guarantee import State
from onceflow.runtime.checkpoint.disk import parse_mounts, require_lasting, state_of, why_lost
from tests.support.pipelines import pipeline_text, write_pipeline

DEBIAN = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
25 24 0:23 / /dev/shm rw,nosuid,nodev shared:3 - tmpfs tmpfs rw,size=24684092k,inode64
27 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,discard,errors=remount-ro
31 27 0:26 / /tmp rw,nosuid,nodev shared:14 - tmpfs tmpfs rw,size=12342046k
40 27 259:3 / /srv/with\\040blank rw,relatime shared:30 - xfs /dev/nvme1n1 rw,attr2,inode64
41 27 253:0 / /mnt/squeezed rw,relatime shared:31 - ext4 /dev/zram0 rw,discard
"""
BTRFS = "29 1 0:26 /root / rw,relatime shared:1 - btrfs /dev/nvme0n1p3 rw,ssd,subvol=/root\n"
DOCKER = """\
587 484 0:52 / / rw,relatime master:215 - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/M4\
:/var/lib/docker/overlay2/l/7Q,upperdir=/var/lib/docker/overlay2/9f1c/diff,workdir=/var/lib/docker/\
overlay2/9f1c/work
590 588 0:57 / /dev/shm rw,nosuid,nodev,noexec,relatime - tmpfs shm rw,size=65536k
601 587 254:1 /var/lib/docker/volumes/checkpoints/_data /var/lib/onceflow rw,relatime master:1 - \
ext4 /dev/vda1 rw,discard
602 587 254:1 /var/lib/docker/containers/9f1c/hostname /etc/hostname rw,relatime - ext4 /dev/vda1 rw
603 587 0:60 / /tmp rw,nosuid,nodev,relatime - tmpfs tmpfs rw,inode64
"""
DOCKER_ON_BTRFS = """\
587 484 0:43 /@docker/btrfs/subvolumes/7f0e / rw,relatime - btrfs /dev/sda2 rw,subvolid=5
"""
PODMAN = """\
700 600 0:80 / / rw,relatime - overlay overlay rw,lowerdir=/home/u/.local/share/containers/storage/\
overlay/l/A,upperdir=/home/u/.local/share/containers/storage/overlay/b/diff,workdir=/x/work
"""
KUBERNETES = """\
2001 1900 0:441 / / ro,relatime - overlay overlay rw,lowerdir=/var/lib/containerd/io.containerd.\
snapshotter.v1.overlayfs/snapshots/61/fs,upperdir=/var/lib/containerd/io.containerd.snapshotter.v1.\
overlayfs/snapshots/88/fs,workdir=/var/lib/containerd/x/88/work
2010 2001 8:1 /var/lib/kubelet/pods/0b/volumes/kubernetes.io~empty-dir/scratch /tmp rw,relatime - \
ext4 /dev/sda1 rw,discard
2011 2001 8:64 / /var/lib/onceflow/checkpoints rw,relatime - ext4 /dev/sde rw
2012 2001 0:430 / /memory rw,relatime - tmpfs tmpfs rw,size=1048576k,inode64
2013 2001 8:1 /srv/checkpoints /hostpath rw,relatime - ext4 /dev/sda1 rw,discard
2014 2001 8:17 /pods/0b/volumes/kubernetes.io~empty-dir/other /own-disk rw - xfs /dev/sdb1 rw
2015 2001 0:500 / /shared rw,relatime - nfs4 10.0.0.5:/export/checkpoints rw,vers=4.2,hard
2016 2001 8:1 /opt/local-path-provisioner/pvc-41/ /local-path rw,relatime - ext4 /dev/sda1 rw
"""
IMMUTABLE_HOST = """\
25 1 0:20 / / rw,noatime - overlay overlayfs:/overlay rw,lowerdir=/,upperdir=/overlay/upper,\
workdir=/overlay/work
26 25 179:3 / /overlay rw,noatime - f2fs /dev/mmcblk0p3 rw
"""


@pytest.mark.parametrize(
    ("sample", "is_in_container", "lost"),
    [
        (DEBIAN, False, {"/dev/shm", "/tmp", "/mnt/squeezed"}),
        # A machine made of an image, as sandboxes are, keeps the file that an engine left in it.
        (DEBIAN, True, {"/dev/shm", "/tmp", "/mnt/squeezed"}),
        (BTRFS, False, set()),
        (DOCKER, True, {"/", "/dev/shm", "/tmp"}),
        (DOCKER, False, {"/", "/dev/shm", "/tmp"}),
        (DOCKER_ON_BTRFS, True, {"/"}),
        (PODMAN, False, {"/"}),
        (KUBERNETES, True, {"/", "/tmp", "/memory", "/own-disk"}),
        (IMMUTABLE_HOST, False, set()),
    ],
)
def test_the_mounts_of_a_machine_that_are_lost_are_told(
    sample: str, is_in_container: bool, lost: set[str]
) -> None:
    mounts = parse_mounts(sample)
    found = {
        mount.point
        for mount in mounts.values()
        if mount.kind != "proc" and why_lost(mount, is_in_container=is_in_container)
    }
    assert found == lost
    assert len(mounts) == len(sample.splitlines())


def test_a_reason_names_the_place() -> None:
    mounts = parse_mounts(KUBERNETES)
    told = {m.point: why_lost(m, is_in_container=True) for m in mounts.values()}
    assert told["/"] == "in the container's own layer (overlay at /)"
    assert told["/tmp"] == "on an emptyDir of its pod (/tmp)"
    assert told["/memory"] == "in memory (tmpfs at /memory)"


def test_what_is_no_mount_is_left_out_and_blanks_are_read() -> None:
    assert (
        parse_mounts("\n25 24\nx y 0:1 / / rw - ext4 a rw\n25 24 0:23 / /a - ext4 /dev/x rw") == {}
    )
    assert parse_mounts(DEBIAN)[40].point == "/srv/with blank"


@pytest.fixture
def memory() -> Iterator[str]:
    """A folder in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield folder


NOW_MS = 1_800_000_000_000
TODAY = date(2027, 1, 15)


def test_a_checkpoint_in_memory_is_refused_unless_it_is_waived(memory: str, tmp_path: Path) -> None:
    inside = pipeline_text() + f"checkpoint: {memory}/not/yet/there\n"
    file = write_pipeline(tmp_path, inside)
    with pytest.raises(ConfigError) as refused:
        require_lasting(file, None, NOW_MS)
    (fault,) = refused.value.faults
    assert f"{memory}/not/yet/there is in memory (tmpfs at /dev/shm)" in fault.what
    assert fault.where == "checkpoint"
    assert fault.line == len(inside.splitlines())
    assert fault.rule == "ephemeral-checkpoint"
    assert "ephemeral_checkpoints" in fault.suggestion

    waiver = CheckpointWaiver(reason="a trial on a laptop", until=TODAY)
    require_lasting(file, waiver, NOW_MS)
    assert state_of(memory, waiver, NOW_MS) is State.EPHEMERAL_WAIVED
    assert state_of(memory, waiver, NOW_MS + 86_400_000) is State.EPHEMERAL


def test_a_run_with_a_checkpoint_in_memory_writes_nothing(memory: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(pipeline_text() + f"checkpoint: {memory}/checkpoint\n")
    command = [sys.executable, "-m", "onceflow.cli", "run", str(file)]
    # No broker is at this address: had it looked at the brokers first, it would say so.
    done = subprocess.run(
        [*command, "--bootstrap-servers", "127.0.0.1:1"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={k: v for k, v in os.environ.items() if not k.startswith("ONCEFLOW_EPHEMERAL")},
    )
    assert done.returncode == 2
    assert "the checkpoint would not last" in done.stderr
    assert list(Path(memory).iterdir()) == []


def test_a_link_into_memory_is_seen_through(memory: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(memory)
    assert state_of(f"{link}/checkpoint", None, NOW_MS) is State.EPHEMERAL


@pytest.mark.parametrize("location", ["s3a://bucket/folder", "hdfs://node/folder"])
def test_stores_elsewhere_are_durable(location: str) -> None:
    assert state_of(location, None, NOW_MS) is State.DURABLE
