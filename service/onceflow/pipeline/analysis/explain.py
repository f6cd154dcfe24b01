"""A pipeline from source to sink as plain data: what reads what, under which names and promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from onceflow.contracts.values import duration_text
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.source import Source
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.guarantee import (
    ChainParts,
    Determinism,
    Guarantee,
    Reading,
    Replay,
    State,
    effective_guarantee,
)
from onceflow.protocol.identity import (
    DRIVER_SLOT,
    LaneId,
    consumer_group,
    lane_transactional_id,
    ledger_topic,
    owner_transactional_id,
)


@dataclass(frozen=True)
class Station:
    """One station of the way, and what is known about it."""

    title: str
    facts: tuple[str, ...]


@dataclass(frozen=True)
class Passage:
    """The way from one station to the next, and what is promised there."""

    promise: str
    because: str


@dataclass(frozen=True)
class ReaderGuarantee:
    """The guarantee of one way of reading the output."""

    reading: str
    guarantee: Guarantee


@dataclass(frozen=True)
class Names:
    """Names in Kafka that belong to the pipeline. Only the first lane is spelled out."""

    ledger: str
    group: str
    transactional_ids: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """The whole way: sources, edge, query, edge, sink, and the readers' guarantees."""

    pipeline: str
    delivery: str
    sources: tuple[Station, ...]
    reading: Passage
    query: Station
    writing: Passage
    sink: Station
    readers: tuple[ReaderGuarantee, ...]
    names: Names
    checkpoint: str


def explain(
    pipeline: Pipeline,
    readers: tuple[ReaderGuarantee, ...],
    query_facts: Sequence[str] = (),
    order: str = "",
) -> Explanation:
    """Explain a valid pipeline; an analysis, if there was one, gives `query_facts` and `order`."""
    name = pipeline.name
    return Explanation(
        pipeline=name,
        delivery=pipeline.delivery,
        sources=tuple(_source(view, source) for view, source in pipeline.sources.items()),
        reading=Passage(
            "every committed record once",
            "ranges are logged before they are read: a replay reads the same",
        ),
        query=Station(
            "transform" if pipeline.transform else "query",
            (pipeline.transform or "Spark SQL", *_references(pipeline), *query_facts),
        ),
        writing=_WRITING[pipeline.mode],
        sink=_sink(pipeline, order),
        readers=readers,
        names=Names(
            ledger_topic(name),
            consumer_group(name),
            (
                owner_transactional_id(name),
                lane_transactional_id(name, LaneId(DRIVER_SLOT, 0)),
            ),
        ),
        checkpoint=pipeline.checkpoint_location,
    )


def _references(pipeline: Pipeline) -> Iterator[str]:
    for name, block in pipeline.references.items():
        place = f"file {block.file}" if block.file else f"topic {block.topic}"
        since = f", valid from {block.valid_from}" if block.valid_from else ""
        yield (
            f"looks up {name}: {place} by {', '.join(block.key)}{since}; a change begins with a"
            " batch, and the ledger has its version"
        )


def _source(view: str, source: Source) -> Station:
    block = source.block
    chosen = (f"{k}: {value}" for k, value in block.written.items() if k in block.outside_results)
    facts = [block.describe(), source.format, *chosen]
    if source.event_time is not None:
        lateness = duration_text(source.lateness_ms or 0)
        facts.append(f"event time {source.event_time}, {lateness} lateness")
    if source.idle_after_ms is not None:
        facts.append(f"event time goes on after {duration_text(source.idle_after_ms)} of silence")
    return Station(view, tuple(facts))


def _sink(pipeline: Pipeline, order: str) -> Station:
    kafka = pipeline.sink.kafka
    if kafka.partition is not None:
        partition = f"partition from column {kafka.partition}"
    elif kafka.key is not None:
        partition = f"partition by {kafka.partitioner} of {kafka.key}"
    else:
        partition = "by the value, for want of a key"
    count = f"{kafka.partitions} partitions" if kafka.partitions else "partitions as they are"
    emit = "each result once" if pipeline.sink.emit == "final" else "a result at every change"
    return Station(
        f"topic {kafka.topic}",
        (f"{pipeline.sink.format}, {emit}", f"{count}, {partition}", *([order] if order else [])),
    )


def readers_of(
    delivery: Delivery, determinism: Determinism, state: State
) -> tuple[ReaderGuarantee, ...]:
    """Compute the guarantee of every way of reading the output of a valid pipeline."""
    parts = [ChainParts(Replay.REPLAYABLE, state, delivery, r, determinism) for r in Reading]
    return tuple(ReaderGuarantee(p.reading.value, effective_guarantee(p)) for p in parts)


_WRITING: Mapping[Delivery, Passage] = {
    Delivery.EXACTLY_ONCE: Passage(
        "every batch once, all partitions together",
        "one transaction for records, ledger and positions; replays are skipped",
    ),
    Delivery.AT_LEAST_ONCE: Passage(
        "every batch, and perhaps again with the same sequences",
        "records first, then ledger and positions; a replay writes again",
    ),
    Delivery.AT_MOST_ONCE: Passage(
        "every batch once at most; the ledger names what may be missing",
        "ledger and positions first, then records; replays are skipped",
    ),
}
