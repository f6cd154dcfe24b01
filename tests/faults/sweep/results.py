"""Results of a sweep: JSON lines that are only ever added to, so that a sweep can be resumed."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

FILE = "results.jsonl"


class Outcome(StrEnum):
    """How one run ended. A run without a result never counts as passed."""

    PASSED = "passed"
    FAILED = "failed"


class What(StrEnum):
    """The kind of run."""

    TEST = "test"
    STORM = "storm"
    LOAD = "load"
    RECOVERY = "recovery"
    MUTANTS = "mutants"


@dataclass(frozen=True)
class Result:
    """One run of one thing with one seed.

    Args:
        name: of a test, its node id; of anything else, the options that make it what it is.
        code: commit, with what was changed since.
        again: one line that repeats it.
        says: the last words of a failure.
        figures: what was measured.
    """

    what: What
    name: str
    seed: int
    code: str
    outcome: Outcome
    seconds: float
    again: str
    says: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, int, str]:
        """The key of a run, by which a resumed sweep does not repeat it."""
        return self.what, self.name, self.seed, self.code


def append(file: Path, result: Result) -> None:
    """Add a line, in one piece and onto the disk: the process may be killed right after.

    Several processes may add to one file.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(asdict(result)) + "\n"
    with file.open("ab+") as target:
        fcntl.flock(target, fcntl.LOCK_EX)
        # A line that was cut off by a kill must not swallow this one.
        if target.tell() and not _ends_whole(target.tell(), file):
            line = "\n" + line
        target.write(line.encode())
        target.flush()
        os.fsync(target.fileno())


def read(file: Path) -> list[Result]:
    """Every whole line; a half one is what a kill left behind, and is as if never run."""
    if not file.exists():
        return []
    return [found for line in file.read_text().splitlines() if (found := _parsed(line)) is not None]


def newest(results: Iterable[Result]) -> dict[tuple[str, str, int, str], Result]:
    """The last of each: a failure that was run again counts as what it was last."""
    return {result.key: result for result in results}


def of_code(results: Iterable[Result], code: str) -> Sequence[Result]:
    """Those of one state of the code."""
    return [result for result in newest(results).values() if result.code == code]


def _parsed(line: str) -> Result | None:
    try:
        told = json.loads(line)
    except ValueError:
        return None
    told["what"], told["outcome"] = What(told["what"]), Outcome(told["outcome"])
    return Result(**told)


def _ends_whole(size: int, file: Path) -> bool:
    with file.open("rb") as source:
        source.seek(size - 1)
        return source.read(1) == b"\n"
