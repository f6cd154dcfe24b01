"""Runs a command on a copy of the code as it is now, so that a change in mid-run changes nothing.

A driver is started a hundred times in an hour of faults, and must be the same program each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import onceflow
import onceflow_connectors
from tests.faults.mutants.copies import copy_repository

ROOT = Path(__file__).parents[3]
HOME_VARIABLE = "ONCEFLOW_TEST_HOME"
"""Set in a copy: where the command was given, which relative paths refer to."""
STAMP = "code.json"


PARTS = ("service", "connectors", "tests", "requirements", "pyproject.toml")
"""What a result depends on; a change of a document makes no other code."""


@dataclass(frozen=True)
class Code:
    """Which code ran.

    Args:
        commit: of git, abbreviated.
        changes: of what is not committed, a digest; empty if there is nothing.
    """

    commit: str
    changes: str = ""

    def __str__(self) -> str:
        return f"{self.commit}+{self.changes}" if self.changes else self.commit


@cache
def current_code() -> Code:
    """The code of the tree or copy that holds this module."""
    stamp = ROOT / STAMP
    if HOME_VARIABLE in os.environ and stamp.exists():
        return Code(**json.loads(stamp.read_text()))
    commit = _git("rev-parse", "--short=10", "HEAD")
    # Files that are not added yet count as well.
    if not _git("status", "--porcelain", "--", *PARTS):
        return Code(commit)
    digest = hashlib.sha256()
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard", "--", *PARTS)
    for name in sorted(set(listed.splitlines())):
        if (ROOT / name).is_file():
            digest.update(name.encode() + (ROOT / name).read_bytes())
    return Code(commit, digest.hexdigest()[:8])


def run_frozen(module: str, folder: Path) -> None:
    """Go on in a copy of the tree, with the same arguments; returns only inside one.

    Args:
        module: of the command, for `python -m`.
        folder: the copy is made in it, and stays as evidence.

    Raises:
        RuntimeError: Python finds other code than the copy's.
    """
    if HOME_VARIABLE in os.environ:
        for package in (onceflow, onceflow_connectors):
            if not Path(package.__file__ or "").is_relative_to(ROOT):
                raise RuntimeError(f"{package.__name__} is not the copy's in {ROOT}")
        return
    code = current_code()
    place = at_home(folder)
    place.mkdir(parents=True, exist_ok=True)
    copy = Path(tempfile.mkdtemp(prefix=f"code-{code.commit}-", dir=place))
    copy_repository(ROOT, copy)
    (copy / STAMP).write_text(json.dumps(asdict(code)))
    paths = [copy, copy / "service", copy / "connectors"]
    environment = {
        **os.environ,
        HOME_VARIABLE: str(Path.cwd()),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
    }
    os.chdir(copy)
    os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], environment)


def at_home(path: Path) -> Path:
    """A path as the command was given it, made absolute."""
    return Path(os.environ.get(HOME_VARIABLE, Path.cwd())) / path


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()
