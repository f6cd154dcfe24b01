"""Whether a checkpoint would outlive the process: by the disk under it, as the kernel reports it.

Only what shows is reported: of an anonymous volume, or a network disk that gets cleared, the kernel
says nothing. Where there is no `/proc`, nothing is known, and a folder counts as durable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from onceflow.errors import ConfigError, Fault
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.pipeline.file.policies import CheckpointWaiver
from onceflow.pipeline.file.rules import Rule
from onceflow.protocol.guarantee import EPHEMERAL, State

_PROC = Path("/proc/self")
_CONTAINER_FILES = (Path("/.dockerenv"), Path("/run/.containerenv"))
_CONTAINER_VARIABLE = "KUBERNETES_SERVICE_HOST"
"""containerd and CRI-O leave no file; Kubernetes sets this in every container."""

_IN_MEMORY = frozenset({"tmpfs", "ramfs", "rootfs", "devtmpfs", "hugetlbfs"})
_OVERLAY = frozenset({"overlay", "aufs", "fuse.overlayfs", "fuse-overlayfs"})
_MEMORY_DEVICE = re.compile(r"/dev/(?:zram|ram)\d")
_EMPTY_DIR = "/kubernetes.io~empty-dir/"
_LAYER_STORE = re.compile(r"upperdir=[^,]*/(?:docker|containerd|containers/storage)/")
"""Where engines keep the layers of their containers."""
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One line of `/proc/self/mountinfo`."""

    root: str
    point: str
    kind: str
    device: str
    options: str


def parse_mounts(text: str) -> Mapping[int, Mount]:
    """Every mount by its id; lines that are none are left out."""
    mounts = {}
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if separator and len(fields) >= 6 and len(rest) >= 3 and fields[0].isdigit():
            root, point = map(_unescaped, fields[3:5])
            mounts[int(fields[0])] = Mount(root, point, rest[0], _unescaped(rest[1]), rest[2])
    return mounts


def why_lost(mount: Mount, *, is_in_container: bool) -> str:
    """Why files on this mount would be lost, as the end of a sentence; empty if they would not.

    A machine that is not a container may have an overlay for its root, too, which lasts.
    """
    if mount.kind in _IN_MEMORY:
        return f"in memory ({mount.kind} at {mount.point})"
    if _MEMORY_DEVICE.match(mount.device):
        return f"in memory ({mount.device} at {mount.point})"
    if _EMPTY_DIR in mount.root:
        return f"on an emptyDir of its pod ({mount.point})"
    is_own_root = mount.point == "/" and (mount.kind in _OVERLAY or mount.root != "/")
    if (is_in_container and is_own_root) or (
        mount.kind in _OVERLAY and _LAYER_STORE.search(mount.options)
    ):
        return f"in the container's own layer ({mount.kind} at {mount.point})"
    return ""


def why_ephemeral(location: str) -> str:
    """Why a checkpoint would be lost there; empty if nothing says that it would."""
    if "://" in location:
        return ""
    mount = _mount_of(Path(location))
    if mount is None:
        return ""
    is_in_container = _CONTAINER_VARIABLE in os.environ or any(
        file.exists() for file in _CONTAINER_FILES
    )
    return why_lost(mount, is_in_container=is_in_container)


def state_of(location: str, waiver: CheckpointWaiver | None, now_ms: int) -> State:
    """Whether a checkpoint outlives the process."""
    if not why_ephemeral(location):
        return State.DURABLE
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    is_waived = waiver is not None and today <= waiver.until
    return State.EPHEMERAL_WAIVED if is_waived else State.EPHEMERAL


def ephemeral_fault(file: PipelineFile, state: State) -> Fault | None:
    """Find what is wrong with the place of a checkpoint; None if it may run there."""
    if state is not State.EPHEMERAL:
        return None
    location = file.pipeline.checkpoint_location
    return Fault(
        f"{location} is {why_ephemeral(location)}: {EPHEMERAL.why}",
        "checkpoint",
        file.document.place(("checkpoint",)).line,
        expected="a folder on a disk, a volume or a URL that lasts",
        suggestion="Move `checkpoint`, or set `ephemeral_checkpoints` in the settings with a"
        " reason and a last day.",
        rule=Rule.EPHEMERAL_CHECKPOINT,
    )


def require_lasting(file: PipelineFile, waiver: CheckpointWaiver | None, now_ms: int) -> None:
    """Refuse a checkpoint that would be lost with the process.

    Raises:
        ConfigError: it would be, and no waiver accepts that.
    """
    state = state_of(file.pipeline.checkpoint_location, waiver, now_ms)
    if fault := ephemeral_fault(file, state):
        raise ConfigError("the checkpoint would not last", subject=str(file.path), faults=(fault,))


def _mount_of(path: Path) -> Mount | None:
    """The mount that holds a path or, as long as it does not exist, its nearest parent.

    By the id that the kernel gives for an open folder: names can't tell mounts that hide others.
    """
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    try:
        folder = os.open(nearest, os.O_RDONLY)
        try:
            facts = (_PROC / f"fdinfo/{folder}").read_text(encoding="utf-8")
        finally:
            os.close(folder)
        mounts = parse_mounts((_PROC / "mountinfo").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    found = re.search(r"^mnt_id:\s*(\d+)$", facts, re.MULTILINE)
    return mounts.get(int(found[1])) if found else None


def _unescaped(text: str) -> str:
    """The kernel writes blanks and backslashes in octal."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
