"""`onceflow fork`: a new pipeline from the state and the positions of another."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from onceflow.cli.shared.options import BootstrapServers, ConfigFile, load_allowed, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat, print_result
from onceflow.clock import SystemClock
from onceflow.errors import ConfigError


def fork(  # noqa: PLR0913, PLR0917  options of a command line
    pipeline: Annotated[Path, typer.Argument(help="The pipeline file of the origin.")],
    at: Annotated[int, typer.Option(help="Begin with the state after this batch.", min=0)],
    name: Annotated[str, typer.Option(help="Name of the new pipeline.")],
    topic: Annotated[
        str | None,
        typer.Option(help="Output topic of the new pipeline. Default: as its name."),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Make a new pipeline that goes on after a batch of this one, which may run meanwhile.

    Its file is NAME.yaml, in the folder of this one; if there is one, it is taken as it is.
    """
    from dataclasses import replace

    from onceflow.cli.pipeline.run import open_surroundings
    from onceflow.fork import fork_pipeline, text_of_fork
    from onceflow.pipeline.text.files import MAX_PIPELINE_BYTES, read_text
    from onceflow.protocol.identity import check_pipeline_name

    settings = settings_of(bootstrap_servers, config)
    origin = load_allowed(pipeline, settings)
    path = pipeline.with_name(f"{check_pipeline_name(name)}.yaml")
    text = None
    if not path.exists():
        text = text_of_fork(origin, read_text(pipeline, MAX_PIPELINE_BYTES), name, topic or name)
    copy = load_allowed(path, settings, text)
    _check_file(path, name, copy.pipeline.name, "--name")
    _check_file(
        path, topic or copy.pipeline.sink.kafka.topic, copy.pipeline.sink.kafka.topic, "--topic"
    )
    around = replace(open_surroundings(settings, SystemClock()), report=_tell)
    head = fork_pipeline(origin, copy, at, around, settings.transaction_timeout_s)
    if text is not None:
        # Last: started before, it would begin at the beginning.
        path.write_text(text, encoding="utf-8")
    fields = {
        "pipeline": name,
        "origin": head.origin.to_json() if head.origin else None,
        "file": str(path),
        "checkpoint": copy.pipeline.checkpoint_location,
        "output": copy.pipeline.sink.kafka.topic,
    }
    print_result(
        output,
        fields,
        f"{name} goes on after {head.origin}\n"
        f"  file        {path}{' (written)' if text is not None else ''}\n"
        f"  checkpoint  {fields['checkpoint']}\n"
        f"  output      {fields['output']}, numbered from 1\n"
        f"start it with `onceflow run {shlex.quote(str(path))}`",
    )


def _check_file(path: Path, wanted: str, found: str, option: str) -> None:
    if wanted != found:
        raise ConfigError(
            "there is another pipeline file where that of the fork would be",
            subject=str(path),
            expected=f"{wanted}, as {option} says",
            found=found,
            then="nothing was written; correct or remove that file, or choose another name",
        )


def _tell(event: str, /, **facts: object) -> None:
    if event == "warning":
        typer.echo(f"warning: {facts.get('text')}", err=True)
