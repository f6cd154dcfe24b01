"""Java archives for the embedded broker and the benchmark: pinned, verified, cached.

A pipeline needs none of them. Each set is two files in `jarsets/`: `NAME.xml`, what to resolve, and
`NAME.sha256`, the whole result. Nothing is used unless its content is the one in the lock; once the
cache is full, no network is needed.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from onceflow.devkit.ivy import resolve_with_ivy
from onceflow.devkit.paths import CACHE_VARIABLE, cache_dir
from onceflow.errors import ConfigError, Fault

DEFINITIONS = Path(__file__).parent / "jarsets"
_STAGING = ".fetch-"


@dataclass(frozen=True)
class JarSet:
    """Archives that belong on one class path."""

    name: str
    """Such as `broker`."""
    definition: Path
    """The Ivy file that resolves to the set."""
    sha256: Mapping[str, str]
    """File name -> digest in hex, complete."""


Resolve = Callable[[JarSet, Path], None]
"""Puts a set's jars into an empty folder, or raises ConfigError."""


def jar_set(name: str) -> JarSet:
    """The set of that name, as locked in this package."""
    lock = (DEFINITIONS / f"{name}.sha256").read_text(encoding="ascii")
    pairs = (line.split() for line in lock.splitlines())
    return JarSet(name, DEFINITIONS / f"{name}.xml", {file: digest for digest, file in pairs})


def lock_text(folder: Path) -> str:
    """The lock of the jars in a folder, in the format of `sha256sum`."""
    return "".join(f"{_sha256(jar)}  {jar.name}\n" for jar in sorted(folder.glob("*.jar")))


def resolve_jars(jars: JarSet, folder: Path) -> None:
    """Fetch a set over the network, unverified.

    Raises:
        ConfigError: no network, no Java, or no PySpark (which brings Ivy).
    """
    resolve_with_ivy(jars.definition, folder, len(jars.sha256))


class JarCache:
    """Jars on this machine, shared by all projects and processes of a user.

    Args:
        folder: holds one folder for each set.
        resolve: where missing jars come from.
    """

    def __init__(self, folder: Path, resolve: Resolve = resolve_jars) -> None:
        self._folder = folder
        self._resolve = resolve

    @classmethod
    def of_user(cls) -> JarCache:
        """The cache in `ONCEFLOW_CACHE` or the platform's own place."""
        return cls(cache_dir() / "jars")

    def faults(self, jars: JarSet) -> tuple[Fault, ...]:
        """Every jar of a set that is missing or not what the lock says. Changes nothing."""
        return _faults(self._folder / jars.name, jars)

    def ensure(self, jars: JarSet) -> tuple[Path, ...]:
        """Paths of every jar of a set, each verified now; fetches the set if one is unusable.

        A jar that is corrupt is replaced when there is a network, and is never returned.

        Raises:
            ConfigError: some jars are unusable and cannot be fetched; lists each of them.
        """
        folder = self._folder / jars.name
        if self.faults(jars):
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                # The process that held the lock may have fetched them.
                if faults := self.faults(jars):
                    self._fetch(jars, folder, faults)
        return tuple(folder / file for file in jars.sha256)

    def _fetch(self, jars: JarSet, folder: Path, faults: tuple[Fault, ...]) -> None:
        for abandoned in self._folder.glob(f"{_STAGING}*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        with TemporaryDirectory(dir=self._folder, prefix=_STAGING) as staging:
            fetched = Path(staging)
            try:
                self._resolve(jars, fetched)
            except ConfigError as error:
                raise ConfigError(
                    "jars are missing or corrupt, and fetching them failed",
                    subject=f"set {jars.name} in {folder}",
                    found=str(error),
                    then="Start once with a network, or copy the folder from a machine that has"
                    f" it; {CACHE_VARIABLE} names another cache",
                    faults=faults,
                ) from error
            if faults := _faults(fetched, jars):
                raise ConfigError(
                    "fetched jars are not the locked ones; none was kept",
                    subject=f"set {jars.name}",
                    then="Look for a proxy or mirror that changes files",
                    faults=faults,
                )
            folder.mkdir(exist_ok=True)
            for file in jars.sha256:
                (fetched / file).replace(folder / file)


def _faults(folder: Path, jars: JarSet) -> tuple[Fault, ...]:
    found: list[Fault] = []
    for file, expected in jars.sha256.items():
        jar = folder / file
        if not jar.is_file():
            found.append(Fault("missing jar", where=str(jar)))
        elif (digest := _sha256(jar)) != expected:
            what = f"corrupt jar with sha256 {digest}"
            found.append(Fault(what, where=str(jar), expected=f"sha256 {expected}"))
    return tuple(found)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
