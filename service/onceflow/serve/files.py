"""The files that a service was given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onceflow.config import DEFAULT_FILE
from onceflow.errors import ConfigError, Fault

SUFFIXES = (".yaml", ".yml")


def find_files(paths: Sequence[Path]) -> Sequence[Path]:
    """The files among `paths` and the YAML files in folders among them, by their names.

    Raises:
        ConfigError: there is none, or a path does not exist.
    """
    missing = [Fault("no such file or folder", str(path)) for path in paths if not path.exists()]
    if missing:
        raise ConfigError("nothing to serve", faults=tuple(missing))
    files = sorted({file for path in paths for file in _files_of(path)})
    if not files:
        folders = ", ".join(map(str, paths))
        expected = "at least one file of a pipeline or a delivery (*.yaml) in it"
        raise ConfigError("nothing to serve", subject=folders, expected=expected)
    return files


def _files_of(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    # The settings of the process are often in the same folder.
    found = (file for file in path.iterdir() if file.suffix in SUFFIXES and not file.is_dir())
    return [file for file in found if file.name != DEFAULT_FILE.name]
