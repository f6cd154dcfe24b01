"""`onceflow init`: a first pipeline to change, with data to try it on and a test of it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from onceflow.errors import ConfigError

TEMPLATE = "template"
"""Folder next to this module with the files of a new pipeline."""
NAME_MARK = "@NAME@"


def init(
    name: Annotated[str, typer.Argument(help="Name of the pipeline and of the folder to create.")],
) -> None:
    """Create a folder with a first pipeline, its data and a test."""
    from onceflow.protocol.identity import check_pipeline_name

    folder = Path(check_pipeline_name(name))
    try:
        folder.mkdir()
    except OSError as error:
        raise ConfigError(
            "cannot create the folder",
            subject=str(folder),
            expected="a new name, in a folder that you can write to",
            found=error.strerror or type(error).__name__,
            then="nothing was written",
        ) from error
    for file in sorted(files(__package__).joinpath(TEMPLATE).iterdir(), key=lambda f: f.name):
        text = file.read_text(encoding="utf-8").replace(NAME_MARK, name)
        target = folder / file.name.removesuffix(".txt")
        target.write_text(text, encoding="utf-8")
        typer.echo(f"wrote {target}")
    typer.echo(f"\nTry it:\n{_first_steps(folder)}")


def _first_steps(folder: Path) -> str:
    return f"""\
  eval "$(onceflow dev up)"
  onceflow produce clicks {folder}/clicks.jsonl --key user --partitions 2
  onceflow run {folder}/pipeline.yaml --until caught-up
  onceflow consume {folder.name} --from-beginning --timeout 2"""
