"""Carries the state of a pipeline over to a changed query, in a copy of its checkpoint.

The pipeline goes on with the copy, at the next batch, once its file names that; until then nothing
of it has changed. Its first start there registers the new query in the ledger, if the pipeline has
not gone on meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onceflow.errors import ConfigError, CorruptionError
from onceflow.fork import made_before
from onceflow.pipeline.file.imports import import_named
from onceflow.pipeline.plan.operators import StateOperator
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.processing.evolution import compare_state
from onceflow.protocol.bulletin import END_KIND, RUNNING_KIND, Bulletin, Ending
from onceflow.protocol.compare import Decision, compare
from onceflow.protocol.fork import moved
from onceflow.protocol.identity import DRIVER_SLOT, BatchKey
from onceflow.protocol.ledger import HeadEntry
from onceflow.run import Run, Surroundings
from onceflow.runtime.checkpoint.checkpoint import Checkpoint
from onceflow.runtime.state.change import compare_operator
from onceflow.runtime.state.forms import form_written_by
from onceflow.runtime.state.layout import Operator
from onceflow.runtime.state.reader import opened_state
from onceflow.runtime.state.rewrite import StateRewriter
from onceflow.runtime.state.transfer import NOTHING, Transfer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SILENCE_MS = 10_000
"""Without a bulletin, which a run posts about once a second, it is taken for dead. Not relied on: a
run that goes on all the same makes the copy useless, and the start on it says so."""
PARTITIONS = "spark.sql.shuffle.partitions"


class Migration:
    """Makes a copy of a checkpoint with other state.

    Args:
        run: of the pipeline as its file is now.
        location: of the copy.
        partitions: of state in the copy; None: as many as there are.
        transfer: what becomes of the state of each operator.
    """

    def __init__(self, run: Run, location: str, partitions: int | None, transfer: Transfer) -> None:
        self._run = run
        self._location = location
        self._partitions = partitions
        self._transfer = transfer
        self.told: dict[str, str] = {}
        """What became of the state of each operator, by its name in the new query."""

    def make(self, reason: str, *, is_rehearsal: bool) -> HeadEntry:
        """Copy the checkpoint. If that fails, or is a rehearsal, nothing is left of the copy.

        Again after a crash, it begins again or finds that it is done.

        Returns:
            The `head` that the pipeline goes on from there.

        Raises:
            ConfigError: the pipeline runs, has a batch left to finish, or its state is so already;
                it is not said what becomes of the state of an operator; or a function fails, or
                gives what cannot be stored.
            CorruptionError, LineageError: ledger and checkpoint do not fit each other.
        """
        run = self._run
        run.broker.brokers(run.deadline())
        _require_stopped(run.pipeline.name, run.around)
        entry = _entry(run, is_change_allowed=bool(self._transfer))
        last = entry.batch.batch_id
        settings = self._settings(last)
        batch = BatchKey(str(uuid.uuid4()), last + 1)
        moves = [f"moved to {self._partitions} partitions of state"] if self._partitions else []
        moves += [str(self._transfer)] if self._transfer else []
        note = f"{', '.join(moves)}: {reason}"
        draft = moved(entry, batch, entry.plan, note)
        copy = run.checkpoint_at(self._location)
        if made := made_before(copy, draft):
            return made
        with ExitStack() as stack:
            session = run.open_session(stack)
            run.analyse(session)
            try:
                run.checkpoint.copy_after(last, copy, draft, with_state=False)
                copy.end_batch(last + 1, settings, self._write_state(session, copy, last, settings))
            except ConfigError:
                copy.delete()
                raise
            copy.recorded.write_operators([vars(each) for each in run.operators])
            head = replace(
                moved(entry, batch, copy.plan(last + 1), note),
                plan_hash=run.identity.hash,
                plan_parts=run.identity.parts,
            )
            if is_rehearsal:
                copy.delete()
            else:
                copy.begin(head)
            return head

    def _settings(self, batch_id: int) -> Mapping[str, str]:
        """Spark's, that the copy pins."""
        found = self._run.checkpoint.settings_of(batch_id)
        has_state = self._run.checkpoint.has_state
        if has_state and (self._transfer or found[PARTITIONS] != str(self._partitions)):
            return {**found, PARTITIONS: str(self._partitions or found[PARTITIONS])}
        raise ConfigError(
            "the state has as many already" if has_state else "there is no state to move",
            subject=self._run.pipeline.name,
            expected="a query with windows or other state, and another number of partitions",
            found=f"{found[PARTITIONS]} partitions" if has_state else "a query without state",
            then=NOTHING,
        )

    def _write_state(
        self, session: SparkSession, copy: Checkpoint, batch_id: int, settings: Mapping[str, str]
    ) -> Mapping[int, Sequence[Sequence[str]]]:
        """Write the state of the query as it is now, in the copy."""
        run, jvm = self._run, jvm_of(session)
        found: Any = session
        pinned = found._jsparkSession.cloneSession()  # noqa: SLF001  no public way
        for name, value in settings.items():
            pinned.conf().set(name, value)
        run.describe_state(pinned, copy.state_path, settings)
        # Stores of state in a session look for what this makes.
        _ = session.streams
        ids = {}
        with (
            opened_state(run.checkpoint.location, run.around.session, jvm) as old,
            opened_state(self._location, run.around.session, jvm) as new,
        ):
            before, after = old.layout.operators(), new.layout.operators()
            sources = self._transfer.sources(before, after)
            kept = self._kept(sources, after)
            self._record_processors(copy, sources, before, after)
            rewriter = StateRewriter(old, new, jvm, pinned, batch_id)
            for operator in after:
                source, function = sources[operator.name]
                change = import_named(function, run.pipeline.folder) if function else None
                runner = run.analysis.processors.get(operator.step)
                rows, ids[operator.operator_id] = rewriter.write(
                    source, operator, int(settings[PARTITIONS]), change, runner
                )
                how = f"changed by {function}" if function else kept.get(operator.name, "kept")
                name = f" of {source.name}" if source and source.name != operator.name else ""
                self.told[operator.name] = f"{rows} rows{name}, {how}" if source else "no rows: new"
        return ids

    def _kept(
        self, sources: Mapping[str, tuple[Operator | None, str]], after: Sequence[Operator]
    ) -> Mapping[str, str]:
        """Compare what goes on as it is with what the new query keeps; say what becomes of it.

        Raises:
            ConfigError: it cannot be read as that.
        """
        recorded = self._run.checkpoint.recorded
        olds = {each["operator"]: StateOperator(**each) for each in recorded.operators() or ()}
        news = {each.operator: each for each in self._run.operators}
        if self._transfer and not olds:
            raise ConfigError(
                "the checkpoint does not say what its state is",
                subject=self._run.pipeline.name,
                expected="one that this release has run a batch on",
                then=f"{NOTHING}; undo the change, run it once, then try again",
            )
        refused: list[str] = []
        told: dict[str, str] = {}
        for operator in after:
            source, function = sources[operator.name]
            if source is None or function or not olds:
                continue
            compared = [compare_operator(olds[source.operator_id], news[operator.operator_id])]
            if operator.step and source.step:
                states = recorded.states_of(source.step)
                runner = self._run.analysis.processors[operator.step]
                compared.append(compare_state(states[-1]["declared"], runner.declared))
            refused += [f"{operator.name}: {why}" for each in compared for why in each.refused]
            told[operator.name] = str(compared[-1])
        if refused:
            raise ConfigError(
                "the state cannot go on as it is",
                subject=self._run.pipeline.name,
                found="; ".join(refused),
                then=f"{NOTHING}; name a function that changes it: `--with`",
            )
        return told

    def _record_processors(
        self,
        copy: Checkpoint,
        sources: Mapping[str, tuple[Operator | None, str]],
        before: Sequence[Operator],
        after: Sequence[Operator],
    ) -> None:
        """Say in the copy in which form the state of each processor is."""
        recorded = self._run.checkpoint.recorded
        for old in before:
            if old.step:
                copy.recorded.forget_states_of(old.step)
        for new in after:
            if not new.step:
                continue
            source, function = sources[new.name]
            now = form_written_by(self._run.analysis.processors[new.step])
            kept = recorded.states_of(source.step) if source and not function else ()
            copy.recorded.write_states_of(new.step, [*(each for each in kept if each != now), now])


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
            then=f"{NOTHING}; stop it, then try again",
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
            then=f"{NOTHING}; run it once more, `--until caught-up`, then try again",
        )
    changes = run.identity.changes_since(head)
    if changes and not is_change_allowed:
        raise ConfigError(
            "this is not the query that wrote the last batch",
            subject=run.pipeline.name,
            expected="what the ledger has recorded",
            found=f"changes of {', '.join(changes)}",
            then=f"{NOTHING}; undo the changes, or start it with `--accept-change` first",
        )
    return head
