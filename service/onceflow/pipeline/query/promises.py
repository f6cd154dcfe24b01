"""Whether the sources of a pipeline can keep what its `delivery` promises."""

from __future__ import annotations

from collections.abc import Iterator

from onceflow.contracts.source_block import Capabilities
from onceflow.errors import ConfigError, Fault
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.pipeline.file.rules import Rule
from onceflow.protocol.guarantee import (
    ChainParts,
    Level,
    Reading,
    Replay,
    State,
    effective_guarantee,
)


def require_sources(file: PipelineFile) -> None:
    """Refuse sources that cannot keep what is promised.

    Raises:
        ConfigError: with a fault for each of them.
    """
    if faults := tuple(source_faults(file)):
        what = "a source cannot keep what `delivery` promises"
        raise ConfigError(what, subject=str(file.path), faults=faults)


def source_faults(file: PipelineFile) -> Iterator[Fault]:
    """One fault for each source that cannot keep what is promised. Connects to nothing."""
    pipeline = file.pipeline
    for view, source in pipeline.sources.items():
        replay = replay_of(source.block.capabilities)
        # Its checkpoint is looked at when it starts, on the machine where it starts.
        parts = ChainParts(replay, State.DURABLE, pipeline.mode, Reading.DEDUPLICATING)
        guarantee = effective_guarantee(parts)
        if guarantee.level is not Level.REFUSED:
            continue
        for reason in guarantee.reasons:
            yield Fault(
                f"{pipeline.delivery} is not possible: {reason.why}",
                where=f"sources.{view}",
                line=file.document.place(("sources", view)).line,
                suggestion=reason.fix,
                rule=Rule.IMPOSSIBLE_DELIVERY,
            )


def replay_of(capabilities: Capabilities) -> Replay:
    """Judge the promises of a source: a replay needs all of them."""
    needed = (
        capabilities.is_replayable,
        capabilities.has_stable_ranges,
        capabilities.is_ordered,
    )
    return Replay.REPLAYABLE if all(needed) else Replay.NONE
