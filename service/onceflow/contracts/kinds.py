"""Finds the kinds of sources and targets that packages add by entry points."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from onceflow.contracts.block import Block
from onceflow.errors import ConfigError

B = TypeVar("B", bound=Block)


def installed(group: str) -> Sequence[str]:
    """Names of the kinds of a group of entry points. Imports none of them."""
    return sorted(_entry_points(group, tuple(sys.path)))


def find_kind(group: str, what: str, kind: str, base: type[B]) -> type[B]:
    """Import the block of a kind.

    Args:
        group: of entry points.
        what: `source` or `target`, for messages.
        kind: the key in the file.
        base: what the block derives from.

    Raises:
        ConfigError: no such kind is installed, or what is installed does not work.
    """
    points = _entry_points(group, tuple(sys.path))
    if kind not in points:
        expected = f"one of {', '.join(sorted(points))}"
        raise ConfigError(f"unknown kind of {what}", subject=kind, expected=expected)
    point = points[kind]
    try:
        found = point.load()
    except Exception as error:  # whatever the package does when it is imported
        raise _broken(what, point, f"{type(error).__name__}: {error}") from error
    if not (inspect.isclass(found) and issubclass(found, base)):
        raise _broken(what, point, f"{point.value} is not a {base.__name__}")
    if found.model_config.get("extra") != "forbid":
        raise _broken(what, point, f"{point.value} accepts unknown keys")
    return found


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Those of a search path: reading all metadata takes longer than reading a file."""
    return {point.name: point for point in entry_points(group=group)}


def _broken(what: str, point: EntryPoint, why: str) -> ConfigError:
    package = point.dist.name if point.dist else point.value
    return ConfigError(
        f"an installed {what} does not work",
        subject=f"{point.name} of package {package}",
        found=why,
        then="install another version of the package, or remove it",
    )
