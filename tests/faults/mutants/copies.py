"""Copies of a source tree, for patches: the tree itself is never touched.

Without git: the tests run on machines that have none.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from pathspec import GitIgnoreSpec
from unidiff.patch import Hunk, PatchSet

LIST = "copied-files"
"""In a copy: what it consists of."""
IGNORED = ".gitignore"


class PatchError(Exception):
    """A patch does not fit the tree any more."""


def copy_repository(root: Path, target: Path) -> None:
    """Copy a repository as it is now, without what git ignores; or a copy that is such.

    A sweep runs in a copy, in a folder that git ignores, and makes copies of that.
    """
    names = _files(root)
    copy_files(root, target, names)
    (target / LIST).write_text("\0".join(names), encoding="utf-8")


def _files(root: Path) -> list[str]:
    if (root / LIST).exists():
        return (root / LIST).read_text(encoding="utf-8").split("\0")
    return sorted(_not_ignored(root))


def _not_ignored(root: Path) -> Iterator[str]:
    rules = [".git/", *(root / IGNORED).read_text(encoding="utf-8").splitlines()]
    ignored = GitIgnoreSpec.from_lines(rules)
    for folder, folders, files in os.walk(root):
        place = Path(folder).relative_to(root)
        # Ignored folders are not visited: environments and caches are large.
        folders[:] = [each for each in folders if not ignored.match_file(f"{place / each}/")]
        names = (str(place / each) for each in files)
        yield from (name for name in names if not ignored.match_file(name))


def copy_files(root: Path, target: Path, names: Sequence[str]) -> None:
    """Copy some files; those that are not there any more are left out."""
    for name in names:
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            # With the time of its last change: compiled modules stay valid in a copy of a copy.
            shutil.copy2(root / name, target / name)


def apply_patch(patch: Path, tree: Path) -> None:
    """Change a copy.

    Each hunk goes where its old lines stand, whatever its line numbers say: a patch outlives
    changes elsewhere in its files.

    Raises:
        PatchError: the old lines of a hunk are not there, or in two places; nothing was changed.
    """
    text = patch.read_text(encoding="utf-8")
    changed = {}
    for file in PatchSet(text[text.index("--- a/") :]):
        content = (tree / file.path).read_text(encoding="utf-8")
        for hunk in file:
            old, new = _lines(hunk, "-"), _lines(hunk, "+")
            places = [each.span() for each in re.finditer(f"^{re.escape(old)}", content, re.M)]
            if len(places) != 1:
                told = f"the lines of a hunk occur {len(places)} times"
                raise PatchError(f"{file.path}: {told}:\n{old}")
            ((begin, end),) = places
            content = content[:begin] + new + content[end:]
        changed[tree / file.path] = content
    for place, content in changed.items():
        place.write_text(content, encoding="utf-8")


def _lines(hunk: Hunk, kind: str) -> str:
    return "".join(line.value for line in hunk if line.line_type in {" ", kind})
