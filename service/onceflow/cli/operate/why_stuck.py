"""`onceflow why-stuck`: what holds up the runs of a file, with evidence and fix."""

from __future__ import annotations

from pathlib import Path

from onceflow.cli.operate.target import LookTarget, commands_for_target, survey_of
from onceflow.cli.shared.findings import WATCH_S, tell
from onceflow.cli.shared.options import BootstrapServers, ConfigFile, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat


def why_stuck(
    pipeline: LookTarget,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Name what holds up a file of any kind, with evidence and fix. Exits with 1 if so.

    The most serious cause comes first. Only the file of a pipeline tells which sources have an
    event time.
    """
    from onceflow.observe.diagnosis import diagnose

    settings = settings_of(bootstrap_servers, config)
    if (commands := commands_for_target(pipeline)) is not None:
        commands.why_stuck(Path(pipeline), settings, output)
        return
    with survey_of(pipeline, settings) as survey:
        facts = survey.watched(survey.facts(), WATCH_S)
    tell(facts.head.pipeline, diagnose(facts), facts, output)
