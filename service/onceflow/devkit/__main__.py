"""Chores around jars for this repository's own build: `python -m onceflow.devkit fetch broker`."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from onceflow.devkit.jars import DEFINITIONS, JarCache, JarSet, jar_set, lock_text, resolve_jars

commands = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


@commands.command()
def fetch(name: str, into: Path | None = None) -> None:
    """Fill the cache with a set of jars; with --into, copy the verified jars to a folder too."""
    jars = JarCache.of_user().ensure(jar_set(name))
    if into is not None:
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        for jar in jars:
            shutil.copy2(jar, into)
    typer.echo(f"{len(jars)} jars of set {name} are verified")


@commands.command()
def lock(name: str) -> None:
    """Resolve a set again and write its lock into the source tree."""
    jars = JarSet(name, DEFINITIONS / f"{name}.xml", {})
    with TemporaryDirectory() as folder:
        resolve_jars(jars, Path(folder))
        text = lock_text(Path(folder))
    (DEFINITIONS / f"{name}.sha256").write_text(text, encoding="ascii")
    typer.echo(f"{len(text.splitlines())} jars of set {name} are locked")


commands()
