"""`onceflow fetch`: jars that only some pipelines need."""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def fetch(
    what: Annotated[
        Literal["s3"], typer.Argument(metavar="s3", help="For checkpoints at s3a://...")
    ],
) -> None:
    """Fetch, verify and install the jars that a checkpoint at s3a://... needs."""
    from onceflow.devkit.jars import JarCache, jar_set
    from onceflow.java.choice import find_java
    from onceflow.java.s3_jars import install

    jars = JarCache.of_user().ensure(jar_set(what))
    folder = install(jars, find_java())
    typer.echo(f"{len(jars)} jars are verified and installed in {folder}")
