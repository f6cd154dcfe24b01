"""Copies of a source tree, for patches: the tree itself is never touched."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

LIST = "copied-files"
"""In a copy: what it consists of."""


class PatchError(Exception):
    """A patch does not fit the tree any more."""


def copy_repository(root: Path, target: Path) -> None:
    """Copy what git tracks, as it is now, and what it would not ignore; or a copy that is such.

    A sweep runs in a copy, which lies in a folder that git ignores, and makes copies of that.
    """
    names = _files(root)
    copy_files(root, target, names)
    (target / LIST).write_text("\0".join(names), encoding="utf-8")


def _files(root: Path) -> list[str]:
    if (root / LIST).exists():
        return (root / LIST).read_text(encoding="utf-8").split("\0")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
    )
    return sorted(set(listed.stdout.decode().split("\0")) - {""})


def copy_files(root: Path, target: Path, names: Sequence[str]) -> None:
    """Copy some files; those that are deleted and not committed as such are left out."""
    for name in names:
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            # With the time of its last change: compiled modules stay valid in a copy of a copy.
            shutil.copy2(root / name, target / name)


def apply_patch(patch: Path, tree: Path) -> None:
    """Change a copy.

    Raises:
        PatchError: it does not fit; nothing was changed.
    """
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", str(patch)],
        cwd=tree,
        # Inside of a repository git would pass over files that are not the repository's.
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise PatchError(done.stderr.strip())
