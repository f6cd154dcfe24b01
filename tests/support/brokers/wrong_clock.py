"""A wrong wall clock for child processes, by libfaketime; their monotonic clock stays right.

Not for containers: what is preloaded would have to be in their image.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

_RULES = {
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    # Otherwise it makes waits on the monotonic clock return at once.
    "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    # Files keep their true times: the JVM compares those of its jars.
    "NO_FAKE_STAT": "1",
    "FAKE_UTIME": "0",
    # The file is looked at once a second: at every call is slow, and not safe with threads.
    "FAKETIME_CACHE_DURATION": "0",
}


class ClockOffset:
    """How far the clock of some processes is off, which may be changed while they run.

    Args:
        file: of this object alone; its folder exists.
    """

    def __init__(self, file: Path, seconds: float = 0.0) -> None:
        self._file = file
        self.set(seconds)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables for a process that is to have this clock; it hands them to its children.

        Raises:
            FileNotFoundError: there is no libfaketime for this machine.
        """
        return {"LD_PRELOAD": str(_library()), "FAKETIME_TIMESTAMP_FILE": str(self._file), **_RULES}

    def set(self, seconds: float) -> None:
        """Above zero the clock is fast. Running processes see it within a second.

        A broker whose clock went back seems to wait for the old time before any time-out of
        its quorum: a dead controller is not missed until then. Only a restart cures it.
        """
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(f"{seconds:+f}\n")
        unfinished.replace(self._file)


def faketime_environment(offset_s: float) -> Mapping[str, str]:
    """Variables for a process whose clock is off by so much for as long as it runs.

    Raises:
        FileNotFoundError: there is no libfaketime for this machine.
    """
    return {"LD_PRELOAD": str(_library()), "FAKETIME": f"{offset_s:+f}", **_RULES}


def _library() -> Path:
    for candidate in _candidates():
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(
        "no libfaketime: install the Python package libfaketime (x86-64) or the system's own"
    )


def _candidates() -> Iterator[Path]:
    # Found without being imported: that needs packages that we do not.
    package = find_spec("libfaketime")
    if package is not None and platform.machine() == "x86_64":
        for folder in package.submodule_search_locations or ():
            yield Path(folder, "vendor", "libfaketime", "src", "libfaketime.so.1")
    for folder in ("lib/*", "lib64", "lib"):
        yield from Path("/usr").glob(f"{folder}/faketime/libfaketimeMT.so.1")
