"""Moves the state of a pipeline to another number of partitions, in a copy of its checkpoint.

The pipeline goes on with the copy, at the next batch, once its file names that; until then nothing
of it has changed. Its first start there registers the new query in the ledger, if the pipeline has
not gone on meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from onceflow.errors import ConfigError, CorruptionError
from onceflow.fork import made_before
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.pipeline.plan.operators import StateOperator
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.pipeline.query.python_code import import_named
from onceflow.protocol.bulletin import END_KIND, RUNNING_KIND, Bulletin, Ending
from onceflow.protocol.compare import Decision, compare
from onceflow.protocol.fork import moved
from onceflow.protocol.identity import DRIVER_SLOT, BatchKey
from onceflow.protocol.ledger import HeadEntry
from onceflow.run import Run, Surroundings
from onceflow.runtime.state.reader import opened_state
from onceflow.runtime.state.rewrite import changed_rows, write_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SILENCE_MS = 10_000
"""Without a bulletin, which a run posts about once a second, it is taken for dead. Not relied on: a
run that goes on all the same makes the copy useless, and the start on it says so."""
_NOTHING = "nothing was written"


def migrate_state(
    file: PipelineFile,
    location: str,
    partitions: int | None,
    reason: str,
    around: Surroundings,
    function: str = "",
) -> HeadEntry:
    """Copy the checkpoint to `location`, with the state in this number of partitions.

    Everything is checked before anything is written. Again after a crash, it begins again or finds
    that it is done.

    Without `partitions`, their number stays the same. A `function`, as `module:function`, makes the
    state of the query as it is now of that of the query that wrote the last batch.

    Returns:
        The `head` that the pipeline goes on from there.

    Raises:
        ConfigError: the pipeline runs, has a batch left to finish, or its state is so already; or
            the function fails, or gives what cannot be stored.
        CorruptionError, LineageError: ledger and checkpoint do not fit each other.
    """
    with ExitStack() as stack:
        run = stack.enter_context(Run(file, around))
        run.broker.brokers(run.deadline())
        _require_stopped(file.pipeline.name, around)
        entry = _entry(run, is_change_allowed=bool(function))
        last = entry.batch.batch_id
        found = _check_partitions(run, last, partitions)
        batch = BatchKey(str(uuid.uuid4()), last + 1)
        moves = [f"moved to {partitions} partitions of state"] if partitions else []
        moves += [f"state changed by {function}"] if function else []
        note = f"{', '.join(moves)}: {reason}"
        draft = moved(entry, batch, entry.plan, note)
        copy = run.checkpoint_at(location)
        if made := made_before(copy, draft):
            return made
        session = run.open_session(stack)
        change = _changed_state(run, session, last, function) if function else None
        run.checkpoint.copy_after(last, copy, draft)
        if partitions and partitions != found:
            # In a batch without input. Experimental in Spark 4.2, so its name is not public.
            session._streamingCheckpointManager.repartition(location, partitions)  # noqa: SLF001
        if change:
            operator, tables = change
            count = partitions or found
            # The version before is not looked at: the rows of this one are all there are.
            ids = write_rows(session, location, operator, tables, count, last + 1)
            copy.replace_state(last + 1, operator.operator, ids)
            copy.recorded.write_operators([vars(operator)])
        head = replace(
            moved(entry, batch, copy.plan(last + 1), note),
            plan_hash=run.identity.hash,
            plan_parts=run.identity.parts,
        )
        copy.begin(head)
        return head


def _changed_state(
    run: Run, session: SparkSession, batch_id: int, function: str
) -> tuple[StateOperator, Sequence[pa.Table]]:
    """Make the rows of the only operator, an aggregation, for the query as it is now."""
    change = import_named(function, run.pipeline.folder)
    operators = run.analyse(session).operators()
    location, settings = run.checkpoint.location, run.around.session
    # Stores of state in a session look for what this makes.
    _ = session.streams
    with opened_state(location, settings, jvm_of(session)) as reader:
        stored = reader.layout.operators()
        kinds = [each.kind for each in stored], [each.kind for each in operators]
        if kinds != (["aggregation"], ["stateStoreSave"]):
            raise ConfigError(
                "a function can change the state of one aggregation only",
                subject=run.pipeline.name,
                expected="a query that groups once, before and after the change",
                found=f"{', '.join(kinds[0])} before, {', '.join(kinds[1])} after",
                then=_NOTHING,
            )
        return operators[0], changed_rows(reader, stored[0], batch_id, change, operators[0])


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


def _entry(run: Run, *, is_change_allowed: bool) -> HeadEntry:
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
    changes = run.identity.changes_since(head)
    if changes and not is_change_allowed:
        raise ConfigError(
            "this is not the query that wrote the last batch",
            subject=run.pipeline.name,
            expected="what the ledger has recorded",
            found=f"changes of {', '.join(changes)}",
            then=f"{_NOTHING}; undo the changes, or start it with `--accept-change` first",
        )
    return head


def _check_partitions(run: Run, batch_id: int, wanted: int | None) -> int:
    found = run.checkpoint.partitions_of(batch_id)
    if found is None or found == wanted:
        raise ConfigError(
            "there is no state to move" if found is None else "the state has as many already",
            subject=run.pipeline.name,
            expected="a query with windows or other state, and another number of partitions",
            found="a query without state" if found is None else f"{found} partitions",
            then=_NOTHING,
        )
    return found
