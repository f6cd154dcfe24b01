"""Puts the settings of the process together.

In rising order: `onceflow.yaml` in the working directory (or the file that `--config` or
`ONCEFLOW_CONFIG` names), the environment (`ONCEFLOW_BOOTSTRAP_SERVERS`, and with two underscores
between levels `ONCEFLOW_SASL__USERNAME`), the command line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from onceflow.errors import ConfigError, Fault
from onceflow.pipeline.file.loader import validation_faults
from onceflow.pipeline.text.keys import KeyIndex
from onceflow.pipeline.text.yaml_text import Document, parse_yaml
from onceflow.settings import Settings

PREFIX = "ONCEFLOW_"
FILE_VARIABLE = "ONCEFLOW_CONFIG"
DEFAULT_FILE = Path("onceflow.yaml")
_OTHER_VARIABLES = re.compile(r"ONCEFLOW_(CONFIG|CACHE|CRASH_POINT|CRASH_PROOF|TRACEBACK|TEST_\w+)")
"""Variables with our prefix that do not name settings."""


@dataclass(frozen=True)
class _Layers:
    """The values that were given, and where."""

    path: Path
    document: Document
    environment: Mapping[str, Any]
    said: Mapping[str, Any]
    """On the command line."""
    faults: Sequence[Fault]
    """What is wrong before any value is looked at."""

    def merged(self) -> Mapping[str, Any]:
        return _merged(_merged(self.document.data, self.environment), self.said)

    def origin(self, path: Sequence[str]) -> str:
        """Where a value that is in force was set."""
        if has_path(self.said, path):
            return "--" + path[0].replace("_", "-")
        if has_path(self.environment, path):
            return PREFIX + "__".join(path).upper()
        if has_path(self.document.data, path):
            return f"{self.path}, line {self.document.place(path).line}"
        return "default"


def load_settings(
    environment: Mapping[str, str],
    overrides: Mapping[str, Any],
    file: Path | None = None,
) -> Settings:
    """The settings of this process; arguments and errors as `read_settings`."""
    return read_settings(environment, overrides, file)[0]


def read_settings(
    environment: Mapping[str, str],
    overrides: Mapping[str, Any],
    file: Path | None = None,
) -> tuple[Settings, Sequence[Mapping[str, Any]]]:
    """Put the settings of this process together.

    Args:
        environment: such as `os.environ`.
        overrides: from the command line, by name; None where nothing was said.
        file: as the command line names it; it must exist then.

    Returns:
        The settings, and each value in force with its dotted `name`, `value` and `origin`.

    Raises:
        ConfigError: lists every fault, each with where it was set.
    """
    layers = _read_layers(environment, overrides, file)
    faults = [*layers.faults]
    try:
        settings = Settings.model_validate(layers.merged())
    except ValidationError as error:
        found = validation_faults(error, layers.document, KeyIndex.of_model(Settings))
        faults += [_with_origin(each, layers) for each in found]
    if faults:
        raise _refused(layers.path, faults)
    leaves = leaves_of(settings.model_dump(mode="json", by_alias=True))
    return settings, [
        {"name": ".".join(path), "value": value, "origin": layers.origin(path)}
        for path, value in leaves
    ]


def _read_layers(
    environment: Mapping[str, str], overrides: Mapping[str, Any], file: Path | None
) -> _Layers:
    path = file or Path(environment.get(FILE_VARIABLE, DEFAULT_FILE))
    is_named = file is not None or FILE_VARIABLE in environment
    document = _parse_file(path) if is_named or path.exists() else Document({})
    if not isinstance(document.data, dict):
        found = Fault("not settings", line=1, expected="a mapping")
        raise _refused(path, document.faults or (found,))
    said = {name: value for name, value in overrides.items() if value is not None}
    from_environment, faults = _from_environment(environment)
    return _Layers(path, document, from_environment, said, [*faults, *document.faults])


def leaves_of(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every value in nested mappings with its path; lists are values."""
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from leaves_of(below, (*path, str(name)))
    else:
        yield path, value


def _parse_file(path: Path) -> Document:
    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "cannot read the settings",
            subject=str(path),
            expected="a YAML file in UTF-8",
            found=getattr(error, "strerror", None) or type(error).__name__,
        ) from error


def _from_environment(environment: Mapping[str, str]) -> tuple[dict[str, Any], list[Fault]]:
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX) or _OTHER_VARIABLES.fullmatch(name):
            continue
        value: Any = text
        if text.startswith("{"):
            try:
                value = json.loads(text)
            except ValueError:
                faults.append(Fault("not JSON", name, expected='such as {"client.rack": "a"}'))
                continue
        for part in reversed(name.removeprefix(PREFIX).lower().split("__")):
            value = {part: value}
        values = _merged(values, value)
    return values, faults


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**below, **above}
    for name in below.keys() & above.keys():
        if isinstance(below[name], Mapping) and isinstance(above[name], Mapping):
            merged[name] = _merged(below[name], above[name])
    return merged


def _with_origin(found: Fault, layers: _Layers) -> Fault:
    """The fault with the place where the value was set, rather than where it ended up."""
    path = found.where.split(".")
    if has_path(layers.said, path) or has_path(layers.environment, path):
        return replace(found, where=layers.origin(path), line=None)
    return found


def has_path(values: Any, path: Sequence[str]) -> bool:
    """Whether nested mappings have a value there."""
    for part in path:
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


def _refused(path: Path, faults: Sequence[Fault]) -> ConfigError:
    return ConfigError("settings refused", subject=str(path), faults=tuple(faults))
