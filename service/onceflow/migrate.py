"""Moves the state of a pipeline to another number of partitions, in a copy of its checkpoint.

The pipeline goes on with the copy, at the next batch, once its file names that; until then nothing
of it has changed. Its first start there registers the new query in the ledger, if the pipeline has
not gone on meanwhile.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack, closing

from onceflow.errors import ConfigError, CorruptionError
from onceflow.fork import made_before
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.protocol.bulletin import END_KIND, RUNNING_KIND, Bulletin, Ending
from onceflow.protocol.compare import Decision, compare
from onceflow.protocol.fork import moved
from onceflow.protocol.identity import DRIVER_SLOT, BatchKey
from onceflow.protocol.ledger import HeadEntry
from onceflow.run import Run, Surroundings

SILENCE_MS = 10_000
"""Without a bulletin, which a run posts about once a second, it is taken for dead. Not relied on: a
run that goes on all the same makes the copy useless, and the start on it says so."""
_NOTHING = "nothing was written"


def migrate_state(
    file: PipelineFile, location: str, partitions: int, reason: str, around: Surroundings
) -> HeadEntry:
    """Copy the checkpoint to `location`, with the state in this number of partitions.

    Everything is checked before anything is written. Again after a crash, it begins again or finds
    that it is done.

    Returns:
        The `head` that the pipeline goes on from there.

    Raises:
        ConfigError: the pipeline runs, has a batch left to finish, or its state is so already.
        CorruptionError, LineageError: ledger and checkpoint do not fit each other.
    """
    with ExitStack() as stack:
        run = stack.enter_context(Run(file, around))
        run.broker.brokers(run.deadline())
        _require_stopped(file.pipeline.name, around)
        entry = _entry(run)
        _check_partitions(run, entry.batch.batch_id, partitions)
        after = entry.batch.batch_id + 1
        batch = BatchKey(str(uuid.uuid4()), after)
        note = f"moved to {partitions} partitions of state: {reason}"
        draft = moved(entry, batch, entry.plan, note)
        copy = run.checkpoint_at(location)
        if made := made_before(copy, draft):
            return made
        run.checkpoint.copy_after(entry.batch.batch_id, copy, draft)
        session = run.open_session(stack)
        # In a batch without input. Experimental in Spark 4.2, so its name is not public.
        session._streamingCheckpointManager.repartition(location, partitions)  # noqa: SLF001
        head = moved(entry, batch, copy.plan(after), note)
        copy.begin(head)
        return head


def _require_stopped(pipeline: str, around: Surroundings) -> None:
    deadline = around.clock.within(SILENCE_MS / 1000)
    with closing(around.connector.bulletin_board(pipeline, around.connection)) as board:
        posted = board.read(deadline)
    try:
        running = Bulletin.from_json(posted[RUNNING_KIND])
    except (KeyError, CorruptionError):
        return
    if END_KIND in posted and Ending.from_json(posted[END_KIND]).run_id == running.run_id:
        return
    if around.clock.unix_ms() - running.at_ms < SILENCE_MS:
        raise ConfigError(
            "the pipeline is running",
            subject=pipeline,
            expected=f"none that was heard of in the last {SILENCE_MS // 1000} s",
            found=f"one on {running.host}",
            then=f"{_NOTHING}; stop it, then try again",
        )


def _entry(run: Run) -> HeadEntry:
    """The position of the ledger, at which the checkpoint is done as well."""
    head = run.ledger.read_head(DRIVER_SLOT, run.deadline())
    facts = run.checkpoint.facts()
    found = compare(facts, head)
    if found.error is not None:
        raise found.error
    if found.decision is not Decision.GO_ON or head is None or facts.planned != facts.done:
        raise ConfigError(
            "the pipeline has something left to finish",
            subject=run.pipeline.name,
            expected="a checkpoint that has done all that it has planned",
            found=f"planned batch {facts.planned}, done batch {facts.done}",
            then=f"{_NOTHING}; run it once more, `--until caught-up`, then try again",
        )
    if changes := run.identity.changes_since(head):
        raise ConfigError(
            "this is not the query that wrote the last batch",
            subject=run.pipeline.name,
            expected="what the ledger has recorded",
            found=f"changes of {', '.join(changes)}",
            then=f"{_NOTHING}; undo the changes, or start it with `--accept-change` first",
        )
    return head


def _check_partitions(run: Run, batch_id: int, wanted: int) -> None:
    found = run.checkpoint.partitions_of(batch_id)
    if found in {None, wanted}:
        raise ConfigError(
            "there is no state to move" if found is None else "the state has as many already",
            subject=run.pipeline.name,
            expected="a query with windows or other state, and another number of partitions",
            found="a query without state" if found is None else f"{found} partitions",
            then=_NOTHING,
        )
