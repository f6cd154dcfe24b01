"""`onceflow fetch`: the jars that Spark's JVMs need besides Spark's own."""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def fetch(
    what: Annotated[
        Literal["kafka", "s3"],
        typer.Argument(
            metavar="kafka|s3", help="Kafka's client, for every pipeline; or for s3a://..."
        ),
    ],
) -> None:
    """Fetch, verify and install the jars of Kafka's client, or those for a checkpoint at s3a://."""
    from onceflow.devkit.jars import JarCache, jar_set
    from onceflow.java import kafka_jars, s3_jars
    from onceflow.java.choice import find_java

    jars = JarCache.of_user().ensure(jar_set(what))
    folder = kafka_jars.install(jars) if what == "kafka" else s3_jars.install(jars, find_java())
    count = "1 jar is" if len(jars) == 1 else f"{len(jars)} jars are"
    typer.echo(f"{count} verified and installed in {folder}")
