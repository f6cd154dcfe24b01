"""Writes `docs/protocol/vectors.json`: what a reader in another language must reproduce.

`python -m tests.support.documents.protocol_vectors` prints the file. Inputs and the decisions of
the filter are written down here by hand; bytes and sums are computed, and are pinned by the file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onceflow.protocol.digest import Row, digest_of
from onceflow.protocol.identity import BatchKey, FencingToken, Layout, pipeline_tag
from onceflow.protocol.ledger import (
    BatchPlan,
    HeadEntry,
    OwnerEntry,
    RecordCounts,
    SinkState,
    canonical_json,
    sources_to_json,
)
from onceflow.protocol.record import Flag, RecordHeader
from onceflow_connectors.consumer.filter import FilterVerdict, PartitionFilter
from onceflow_connectors.kafka.sink.partitioners import PARTITIONERS, partitions_of

FILE = Path(__file__).parents[3] / "docs" / "protocol" / "vectors.json"
ABOUT = (
    "Vectors of protocol version 1. Bytes are hexadecimal; batch_id and sequence are unsigned"
    " 64-bit numbers. In `filter` each step offers one record's header to the filter of one"
    " partition, under the strict rules; `reload` replaces the filter by one that was loaded from"
    " its own state, as after a restart. The state is followed by a zero byte in the metadata of"
    " an offset commit."
)

HEADERS = (
    RecordHeader(Flag.LAST_OF_BATCH, pipeline_tag("page-views"), 1, 0x11223344, 0, 1),
    RecordHeader(Flag(0), 0, 0, 0, 0, 0),
    RecordHeader(Flag.LATE | Flag.RETRACTION, 0xFFFFFFFF, 2, 0x80000000, 2**32, 2**53 + 1),
    RecordHeader(Flag(0xFF), *(2**32 - 1,) * 3, *(2**64 - 1,) * 2, 2**16 - 1),
)
UNREADABLE_HEADERS = {
    "": "length",
    "01": "length",
    "01" + "00" * 32: "length",
    "00" * 32: "version",
    "02" + "00" * 31: "version",
}
PIPELINES = ("page-views", "a", "sensor-means-2")
PLANS = (
    BatchPlan(
        {"clicks": {"clicks": {0: (120, 150), 1: (98, 98), 10: (0, 5)}}}, 0, 1_700_000_000_000
    ),
    BatchPlan({}, 0, 0),
    BatchPlan(
        {"quotes": {"quotes": {0: (5, 9)}}, "trades": {"trades-eu": {0: (1, 2)}}}, 90_000, 100_000
    ),
)
BATCHES: tuple[Sequence[Row], ...] = (
    (),
    ((0, b"k", b"v"),),
    ((0, None, b""), (0, b"", None), (3, b"key", "wértvoll".encode())),
)
KEYS = (
    None,
    b"",
    b"a",
    b"ab",
    b"abc",
    b"abcd",
    b"kafka",
    b"user-4711",
    b"\x00\xff\x80",
    b"x" * 100,
)
PARTITION_COUNTS = (1, 3, 4, 12)

OWNER = OwnerEntry(
    FencingToken(7), "0f8fad5b-d9cb-469f-a165-70867728950e", "host", 1_700_000_000_000, Layout(1, 3)
)
HEAD = HeadEntry(
    pipeline="page-views",
    generation=1,
    batch=BatchKey("7c9e6679-7425-40de-944b-e07fc1f90ae7", 41),
    token=FencingToken(7),
    run_id=OWNER.run_id,
    plan=PLANS[0],
    sink=SinkState(
        "page-views", 4, Layout(1, 3), {0: (101, 150), 1: (88, 87)}, "rTKfYwPhRyOmy6nRYTsGvg"
    ),
    records=RecordCounts(read=35, late=0, rejected=1, written=50),
    digest=digest_of(BATCHES[1]),
    plan_hash="0" * 64,
)

DECISIONS = {
    FilterVerdict.NEXT: "deliver",
    FilterVerdict.REPEAT: "discard",
    FilterVerdict.GAP: "gap",
    FilterVerdict.DIVERGENCE: "divergence",
    FilterVerdict.NEW_LINEAGE: "new lineage",
}
RELOAD = "reload"


@dataclass(frozen=True)
class Step:
    """One record offered to the filter, and what must come of it."""

    sequence: int
    decision: str
    batch_id: int = 0
    plan_tag: int = 7
    generation: int = 1
    tag: int = 1
    lineage: int = 0

    def header(self) -> RecordHeader:
        return RecordHeader(
            Flag(0),
            self.tag,
            self.generation,
            self.plan_tag,
            self.batch_id,
            self.sequence,
            self.lineage,
        )


_MANY_BATCHES = [Step(i + 1, "deliver", batch_id=i) for i in range(9)]
SCENARIOS: dict[str, Sequence[Step | str]] = {
    "news is delivered": [Step(1, "deliver"), Step(2, "deliver"), Step(3, "deliver", batch_id=1)],
    "the first record ever seen is delivered": [Step(41, "deliver"), Step(40, "discard")],
    "repeats are discarded, also after a restart": [
        Step(1, "deliver"),
        Step(2, "deliver"),
        Step(1, "discard"),
        RELOAD,
        Step(2, "discard"),
        Step(3, "deliver"),
    ],
    "a batch that was cut off and written again": [
        Step(1, "deliver"),
        Step(2, "deliver", batch_id=1),
        Step(2, "discard", batch_id=1),
        Step(3, "deliver", batch_id=1),
    ],
    "a hole is a gap, and stays one": [
        Step(1, "deliver"),
        Step(3, "gap"),
        Step(4, "gap"),
        Step(2, "deliver"),
        Step(3, "deliver"),
    ],
    "the same batch with another plan": [
        Step(1, "deliver"),
        Step(1, "divergence", plan_tag=8),
        Step(2, "divergence", plan_tag=8),
        RELOAD,
        Step(1, "divergence", plan_tag=8),
        Step(2, "deliver"),
    ],
    "the same sequence from another batch": [
        Step(1, "deliver", batch_id=1),
        Step(1, "divergence", batch_id=2),
    ],
    "news from an older batch": [
        Step(1, "deliver", batch_id=5, generation=2),
        Step(2, "divergence", batch_id=4, generation=2),
        Step(2, "divergence", batch_id=6, generation=1),
        Step(2, "deliver", batch_id=6, generation=2),
    ],
    "sequences go on over generations": [
        Step(1, "deliver", batch_id=40),
        Step(2, "deliver", batch_id=0, generation=2),
        Step(1, "discard", batch_id=40),
        Step(3, "deliver", batch_id=0, generation=2),
    ],
    "pipelines in one partition are apart": [
        Step(1, "deliver", tag=1),
        Step(1, "deliver", tag=2, plan_tag=9),
        Step(2, "deliver", tag=1),
        Step(1, "discard", tag=2, plan_tag=9),
        Step(3, "gap", tag=2, plan_tag=9),
    ],
    "a pipeline that lost its ledger begins again": [
        Step(1, "deliver", lineage=5),
        Step(2, "deliver", lineage=5),
        Step(1, "new lineage", plan_tag=8, lineage=6),
        Step(3, "new lineage", lineage=6),
        RELOAD,
        Step(1, "new lineage", lineage=6),
        Step(2, "discard", lineage=5),
        Step(3, "deliver", batch_id=1, lineage=5),
    ],
    "where one side tells no lineage, a repeat must prove itself": [
        Step(1, "deliver"),
        Step(2, "deliver"),
        Step(1, "new lineage", plan_tag=8, lineage=6),
        Step(2, "discard", lineage=5),
        Step(3, "deliver", lineage=5),
        Step(1, "new lineage", lineage=6),
        Step(4, "deliver"),
        Step(4, "discard", lineage=5),
    ],
    "plans are remembered of the last eight batches": [
        *_MANY_BATCHES,
        Step(1, "discard", batch_id=0, plan_tag=8),
        Step(2, "divergence", batch_id=1, plan_tag=8),
    ],
}


def scenario(steps: Sequence[Step | str]) -> dict[str, Any]:
    """The steps as JSON, with the state that they lead to."""
    filter_ = PartitionFilter()
    written: list[Any] = []
    for step in steps:
        if isinstance(step, str):
            filter_ = PartitionFilter.from_json(filter_.to_json())
            written.append({RELOAD: filter_.to_json()})
            continue
        track = filter_.track(step.tag)
        verdict = track.judge(step.header())
        if DECISIONS[verdict] != step.decision:
            raise AssertionError(f"{step}: the filter says {verdict}")
        if verdict is FilterVerdict.NEXT:
            track.take(step.header())
        written.append({"header": step.header().pack().hex(), "decision": step.decision})
    return {"steps": written, "state": filter_.to_json()}


def hexadecimal(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def vectors() -> dict[str, Any]:
    return {
        "about": ABOUT,
        "record_headers": [{"hex": h.pack().hex(), "fields": asdict(h)} for h in HEADERS],
        "unreadable_record_headers": [
            {"hex": data, "wrong": wrong} for data, wrong in UNREADABLE_HEADERS.items()
        ],
        "pipeline_tags": {name: pipeline_tag(name) for name in PIPELINES},
        "plan_tags": [
            {
                "json": canonical_json(
                    {
                        "sources": sources_to_json(plan.sources),
                        "event_watermark_ms": plan.event_watermark_ms,
                        "batch_timestamp_ms": plan.batch_timestamp_ms,
                    }
                ),
                "tag": plan.tag(),
            }
            for plan in PLANS
        ],
        "digests": [
            {
                "rows": [[p, hexadecimal(key), hexadecimal(value)] for p, key, value in rows],
                "sha256": digest_of(rows),
            }
            for rows in BATCHES
        ],
        "partitioners": {
            name: [
                {"key": hexadecimal(key), "partitions": count, "partition": found}
                for count in PARTITION_COUNTS
                for key, found in zip(KEYS, partitions_of(name, KEYS, count), strict=True)
            ]
            for name in sorted(PARTITIONERS)
        },
        "ledger": {"owner": OWNER.to_json().decode(), "head": HEAD.to_json().decode()},
        "filter": {name: scenario(steps) for name, steps in SCENARIOS.items()},
    }


def text() -> str:
    return json.dumps(vectors(), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
