"""Imports the user's modules, here and in Spark's workers."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from onceflow.errors import ConfigError, Fault


def let_workers_import(spark: SparkSession, folder: Path) -> None:
    """Functions of the user's modules are sent to workers by name, so these must find them, too."""
    environment = spark.sparkContext.environment
    places = environment.get("PYTHONPATH", "").split(os.pathsep)
    if str(folder) not in places:
        environment["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, places)])


def import_named(name: str, folder: Path) -> Any:
    """Import `module:name`; the pipeline file's folder comes first on the search path.

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
        raise transform_error(f"module {module} cannot be imported", text) from error
    own = folder.joinpath(*module.split(".")).with_suffix(".py")
    file = getattr(imported, "__file__", None)
    if own.is_file() and file is not None and not own.samefile(file):
        what = f"another module called {module} was imported before"
        raise transform_error(what, file, f"{own}; give one of them another name")
    found = getattr(imported, wanted, None)
    if found is None:
        raise transform_error(f"module {module} has no {wanted}", "")
    if not callable(found):
        raise transform_error(f"{name} is not a function", type(found).__name__)
    return found


def transform_error(what: str, found: str, expected: str = "") -> ConfigError:
    """Refuse the user's code."""
    text = f"{what}: {found}" if found else what
    return ConfigError("transform refused", faults=(Fault(text, "transform", expected=expected),))
