"""Summarises a pipeline as plain data: for `status`, the control API and its page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from onceflow.observe.facts import Facts, watermark_holder
from onceflow.texts import iso_text


def summary_of(seen: Facts, time_text: Callable[[int], str] = iso_text) -> dict[str, Any]:
    """Owner, position, lag, watermark, retention, last commit and the account of all records."""
    head, owner, holder = seen.head, seen.owner, watermark_holder(seen)
    sequence = {p: head.sink.next_sequence(p) - 1 for p in range(head.sink.partitions)}
    return {
        "pipeline": head.pipeline,
        "generation": head.generation,
        "batch_id": head.batch.batch_id,
        "query_id": head.batch.query_id,
        "batch_timestamp": time_text(head.plan.batch_timestamp_ms),
        "event_watermark": time_text(head.plan.event_watermark_ms),
        "records": asdict(head.records),
        "totals": asdict(head.totals),
        "waivers": head.waivers,
        "parameters": dict(head.plan.parameters),
        "references": {name: each.of for name, each in head.plan.references.items()},
        "output": {"topic": head.sink.topic, "sequence": sequence},
        "owner": {
            "host": owner.host,
            "token": owner.token,
            "run_id": owner.run_id,
            "started_at": time_text(owner.started_at_ms),
        }
        if owner
        else None,
        "sources": [
            {
                "source": one.source,
                "topic": one.topic,
                "partition": one.partition,
                "position": one.position,
                "lag": one.lag,
                "undecided": one.undecided,
                "newest_record": time_text(one.newest_ms or 0),
            }
            for one in seen.inputs
        ],
        "open_transactions": [asdict(transaction) for transaction in seen.transactions],
        "watermark_holder": asdict(holder) if holder else None,
        "retention": [{**asdict(one), "is_soon": one.is_soon} for one in seen.forecasts],
        "last_bulletin": time_text(seen.bulletin.at_ms) if seen.bulletin else None,
        "last_end": asdict(seen.ending) if seen.ending else None,
        "not_seen": seen.blind,
    }
