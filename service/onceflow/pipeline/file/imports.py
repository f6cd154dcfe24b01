"""Imports the user's modules that a file names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from onceflow.errors import ConfigError, Fault

TRANSFORM = "transform"


def import_named(name: str, folder: Path, where: str = TRANSFORM) -> Any:
    """Import `module:name`; the file's folder comes first on the search path.

    Args:
        name: as the file has it.
        folder: of the file.
        where: the key of the file, for messages.

    Raises:
        ConfigError: there is no such name in it, or importing it fails.
    """
    module, _, wanted = name.partition(":")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        imported = importlib.import_module(module)
    except Exception as error:  # a user's module may raise anything
        is_plain = isinstance(error, ImportError | SyntaxError)
        text = str(error) if is_plain else f"{type(error).__name__}: {error}"
        raise code_error(f"module {module} cannot be imported", text, where=where) from error
    own = folder.joinpath(*module.split(".")).with_suffix(".py")
    file = getattr(imported, "__file__", None)
    if own.is_file() and file is not None and not own.samefile(file):
        what = f"another module called {module} was imported before"
        raise code_error(what, file, f"{own}; give one of them another name", where)
    found = getattr(imported, wanted, None)
    if found is None:
        raise code_error(f"module {module} has no {wanted}", "", where=where)
    if not callable(found):
        raise code_error(f"{name} is not a function", type(found).__name__, where=where)
    return found


def code_error(what: str, found: str, expected: str = "", where: str = TRANSFORM) -> ConfigError:
    """Refuse the user's code."""
    text = f"{what}: {found}" if found else what
    return ConfigError(f"{where} refused", faults=(Fault(text, where, expected=expected),))
