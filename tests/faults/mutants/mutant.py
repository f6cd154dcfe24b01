"""One mutant: a patch with a header."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PATCHES = Path(__file__).parent
WHAT, CAUGHT_BY = "what", "caught-by"
_HEADER_LINE = re.compile(r"(?P<name>[a-z-]+): (?P<value>\S.*)")
_TARGET = re.compile(r"^\+\+\+ b/(\S+)", re.MULTILINE)
_DIFF = "--- a/"


class HeaderError(ValueError):
    """A patch does not say what it must."""


@dataclass(frozen=True)
class Mutant:
    """The product with one guarantee broken.

    Args:
        name: of its file, without the suffix.
        patch: the file; paths in it begin at the repository's root.
        what: the guarantee that is broken, in a sentence.
        tests: node ids that must turn red. Without brackets: at least one of its cases.
        files: that it changes.
    """

    name: str
    patch: Path
    what: str
    tests: Sequence[str]
    files: Sequence[str]


def read_mutant(patch: Path) -> Mutant:
    """Read the header of a patch.

    Raises:
        HeaderError: a field is missing, unknown or given twice, or nothing is changed.
    """
    text = patch.read_text(encoding="utf-8")
    header, _, _ = text.partition(_DIFF)
    fields: dict[str, list[str]] = {WHAT: [], CAUGHT_BY: []}
    for line in header.splitlines():
        match = _HEADER_LINE.fullmatch(line)
        if match is None or match["name"] not in fields:
            raise HeaderError(f"{patch.name}: not a line of a header: {line!r}")
        fields[match["name"]].append(match["value"])
    files = _TARGET.findall(text)
    if len(fields[WHAT]) != 1 or not fields[CAUGHT_BY] or not files:
        raise HeaderError(f"{patch.name}: one {WHAT!r}, some {CAUGHT_BY!r} and a diff are needed")
    return Mutant(patch.stem, patch, fields[WHAT][0], fields[CAUGHT_BY], files)


def read_mutants(folder: Path = PATCHES) -> Sequence[Mutant]:
    """All mutants of a folder, by name.

    Raises:
        HeaderError: as `read_mutant`.
    """
    return [read_mutant(patch) for patch in sorted(folder.glob("*.patch"))]
