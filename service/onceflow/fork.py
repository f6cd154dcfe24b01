"""Forks a pipeline: its state and positions after a batch become the beginning of a new one.

What is written is the checkpoint of the new pipeline. Its ledger begins with its first start, which
registers the position that is kept there. Ledger, output and checkpoint of the origin are only
read, so it may run meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

from onceflow.errors import ConfigError, CorruptionError
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.pipeline.text.yaml_text import Path, with_texts
from onceflow.protocol.fork import forked
from onceflow.protocol.identity import DRIVER_SLOT, head_partition, ledger_topic
from onceflow.protocol.ledger import HEAD_KEY, HeadEntry, SinkState
from onceflow.protocol.proposal import range_difference
from onceflow.run import Run, Surroundings
from onceflow.runtime.checkpoint.checkpoint import Checkpoint
from onceflow.runtime.start.preflight import preflight
from onceflow.runtime.topics.output_tail import AT_FIRST_START, find_written

_NOTHING = "nothing was written"


def text_of_fork(origin: PipelineFile, text: str, name: str, topic: str) -> str:
    """The text of a pipeline file for a fork: as that of its origin but for what must differ.

    Its checkpoint is in the folder that has that of the origin.
    """
    values: dict[Path, str] = {("name",): name, ("sink", "kafka", "topic"): topic}
    if location := origin.pipeline.checkpoint:
        folder, slash, _ = location.rstrip("/").rpartition("/")
        values["checkpoint",] = f"{folder}{slash}{name}"
    return with_texts(text, values)


def fork_pipeline(
    origin: PipelineFile,
    fork: PipelineFile,
    batch_id: int,
    around: Surroundings,
    transaction_timeout_s: float,
) -> HeadEntry:
    """Make the checkpoint of `fork` what that of `origin` was when a batch had ended.

    Everything is checked before anything is written. Again after a crash, it begins again or finds
    that it is done.

    Returns:
        The `head` that the fork begins with.

    Raises:
        ConfigError: it cannot be: another query, a place that is taken, a batch that is not there.
        CorruptionError: ledger and checkpoint contradict each other; or files vanished meanwhile.
        LineageError: the checkpoint is that of another pipeline.
    """
    with Run(origin, around) as source, Run(fork, around) as target:
        source.broker.brokers(source.deadline())
        _check_places(source, target)
        entry = _entry(source, target, batch_id)
        timeout_ms = int(transaction_timeout_s * 1000)
        found = preflight(target.broker, target.pipeline, None, timeout_ms, target.deadline())
        for warning in found.warnings:
            around.report("warning", text=str(warning))
        topic = target.pipeline.sink.kafka.topic
        sink = SinkState(topic, found.partitions, entry.sink.layout)
        head = replace(
            forked(entry, target.pipeline.name, str(uuid.uuid4()), sink),
            plan_hash=target.identity.hash,
            plan_parts=target.identity.parts,
            delivery=target.pipeline.mode,
        )
        if made := made_before(target.checkpoint, head):
            return made
        source.checkpoint.copy_after(batch_id, target.checkpoint, head)
        target.checkpoint.begin(head)
        return head


def _check_places(source: Run, target: Run) -> None:
    """Refuse what the origin uses, and what another pipeline of this name has left.

    Raises:
        ConfigError: it names each.
    """
    name, sink = target.pipeline.name, target.pipeline.sink.kafka
    taken = {
        "name": name == source.pipeline.name,
        "sink.kafka.topic": sink.topic == source.pipeline.sink.kafka.topic,
        "checkpoint": _overlap(source.checkpoint.location, target.checkpoint.location),
    }
    if shared := [key for key, is_shared in taken.items() if is_shared]:
        raise ConfigError(
            "a fork needs what its origin does not use",
            subject=str(target.file.path),
            expected=f"other values of {', '.join(shared)} than in {source.file.path}",
            then=_NOTHING,
        )
    if target.ledger.read_head(DRIVER_SLOT, target.deadline()) is not None:
        raise ConfigError(
            "a pipeline of this name has run already",
            subject=ledger_topic(name),
            expected="a name that no pipeline has had",
            then=_NOTHING,
        )
    clock = target.around.clock
    if find_written(name, sink.topic, target.broker, clock, AT_FIRST_START):
        raise ConfigError(
            "the output holds records of a pipeline of this name",
            subject=sink.topic,
            expected="a name that no pipeline has had, or another topic",
            then=_NOTHING,
        )


def _overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _entry(source: Run, target: Run, batch_id: int) -> HeadEntry:
    """The ledger's newest entry of the batch that the query of the fork could have written."""
    query_id = source.checkpoint.query_id()
    ended = set(source.checkpoint.ended_batches())
    entries: dict[int, list[HeadEntry]] = {}
    for entry in _history(source):
        if entry.batch.query_id == query_id and entry.batch.batch_id in ended:
            entries.setdefault(entry.batch.batch_id, []).append(entry)
    if batch_id not in entries:
        raise ConfigError(
            "the state after this batch is not there",
            subject=f"batch {batch_id} of {source.pipeline.name}",
            expected=f"one from {min(entries)} to {max(entries)}"
            if entries
            else "a batch that was committed and is done",
            then=f"{_NOTHING}; Spark removes older state, and brokers compact older entries away",
        )
    found = entries[batch_id]
    if difference := range_difference(
        found[-1].plan.sources, source.checkpoint.plan(batch_id).sources
    ):
        raise CorruptionError(
            "checkpoint and ledger disagree about this batch",
            subject=f"batch {batch_id} of {source.pipeline.name}",
            expected=f"what the ledger committed: {difference[0]}",
            found=difference[1],
            then=_NOTHING,
        )
    return _of_same_query(found, target)


def _history(source: Run) -> Iterator[HeadEntry]:
    """Read what is committed; do not wait for the open transaction of a driver that died."""
    topic, partition = ledger_topic(source.pipeline.name), head_partition(DRIVER_SLOT)
    offsets = source.broker.offsets(topic, source.deadline())
    if partition in offsets:
        start, stable, _ = offsets[partition]
        for record in source.broker.read(topic, {partition: (start, stable)}, source.deadline()):
            if record.key == HEAD_KEY and record.value is not None:
                yield HeadEntry.from_json(record.value)


def _of_same_query(entries: list[HeadEntry], target: Run) -> HeadEntry:
    """Choose the newest entry of a batch that is of the query; a change has left one of each."""
    newest = entries[-1]
    alike = replace(
        target.file, pipeline=target.pipeline.renamed(newest.pipeline, newest.sink.topic)
    )
    identity = Run(alike, target.around).identity
    for entry in reversed(entries):
        if not identity.changes_since(entry):
            return entry
    raise ConfigError(
        "a fork goes on with the query of its origin",
        subject=str(target.file.path),
        expected=f"what the ledger has recorded for batch {newest.batch.batch_id}",
        found=f"changes of {', '.join(identity.changes_since(newest))}",
        then=f"{_NOTHING}; fork it as it is, then start the fork with `--accept-change`",
    )


def made_before(checkpoint: Checkpoint, head: HeadEntry) -> HeadEntry | None:
    """Find what the same command has made before; None if there is room for it now.

    Raises:
        ConfigError: there is something else.
    """
    made = checkpoint.copied()
    if made is not None and checkpoint.is_unfinished:
        checkpoint.delete()
        return None
    if made is None and checkpoint.is_empty:
        return None
    if made is not None and _mark(made) == _mark(head):
        return made
    raise ConfigError(
        "there is a checkpoint already",
        subject=checkpoint.location,
        expected="an empty place",
        found=f"one that was {made.note}" if made else "other files",
        then=f"{_NOTHING}; remove it, or name another `checkpoint`",
    )


def _mark(head: HeadEntry) -> tuple[object, ...]:
    return head.pipeline, head.origin, head.note
