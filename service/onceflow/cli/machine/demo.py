"""`onceflow demo`: the main job, killed in mid-batch, with a proof at the end."""

from __future__ import annotations

import typer
from rich.console import Console

from onceflow.cli.shared.terminal import unguarded_output
from onceflow.clock import SystemClock

EXIT_WRONG = 7
"""As for corruption: the output is not what it must be."""


def demo() -> None:
    """Kill a running pipeline and prove that nothing was lost.

    Starts its own Kafka, needs no Docker, leaves nothing behind. Exits with 7 if any number
    is wrong.
    """
    from onceflow.devkit.demo.show import run_demo

    proof = run_demo(Console(file=unguarded_output()), SystemClock())
    if not proof.is_right:
        raise typer.Exit(EXIT_WRONG)
