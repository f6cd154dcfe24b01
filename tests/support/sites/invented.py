"""A service whose last hour is invented: what its page looks like depends on nothing but this file.

No run, no broker and no Spark: facts are what a look at a pipeline would give.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from onceflow.clock import SystemClock
from onceflow.control.access import Gate
from onceflow.control.api import control_app
from onceflow.control.pipelines import PipelineViews
from onceflow.control.tokens import Role, Tokens, line_of, new_token
from onceflow.errors import ConfigError, Fault
from onceflow.observe.facts import Facts, InputFacts
from onceflow.protocol.bulletin import Bulletin, StateFigures
from onceflow.protocol.identity import BatchKey, FencingToken, Layout
from onceflow.protocol.ledger import BatchPlan, HeadEntry, OwnerEntry, RecordCounts, SinkState
from onceflow.serve.history import History
from onceflow.serve.hour import INTERVAL_S, SLOTS
from onceflow.serve.http_server import Endpoint, answering
from onceflow.serving import Entry, Service
from tests.support.clock import ManualClock
from tests.support.fakes.runs import Maker
from tests.support.fakes.unreachable import HERE, fake_service, living_members

NOW = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
BATCHES = 60
SILENT_AT, TAKEN_OVER_AT = 880, 900
STOPPED_AT, BACK_AT = 1_830, 1_905

PAGE_VIEWS = """\
apiVersion: onceflow/v1
name: page-views
sources:
  clicks:
    kafka: {topics: [clicks]}
    schema: "user STRING, page STRING, at TIMESTAMP"
    event_time: at
    lateness: 10 seconds
query: |
  SELECT page, window.start AS minute, count(*) AS views
  FROM clicks GROUP BY page, window(at, '1 minute')
sink:
  kafka: {topic: page-views, partitions: 6, key: page}
dead_letter: {topic: page-views-rejected}
checkpoint: /var/lib/onceflow/page-views
"""
ORDERS = """\
apiVersion: onceflow/v1
name: large-orders
sources:
  orders:
    kafka: {topics: [orders]}
    schema: "id STRING, customer STRING, cents BIGINT"
query: SELECT id, customer, cents FROM orders WHERE cents > 100000
sink:
  kafka: {topic: large-orders, partitions: 3, key: id}
checkpoint: /var/lib/onceflow/large-orders
"""
REFUSED = ConfigError(
    "pipeline file refused",
    subject="/etc/onceflow/pipelines/refunds.yaml",
    faults=(
        Fault(
            "the query has no column `amount`",
            "query",
            line=9,
            expected="one of refund_id, order_id, cents",
            suggestion="Did you mean `cents`?",
        ),
    ),
)


@dataclass
class Hour:
    """An hour of one pipeline, told to a history as a run would tell it."""

    history: History
    clock: ManualClock
    per_s: float
    dice: Random = field(default_factory=lambda: Random(7))
    is_timed: bool = True
    batch_id: int = 41_200
    lag: float = 0.0

    def __post_init__(self) -> None:
        self.report = self.history

    def pass_by(self) -> None:
        """Batch after batch; one failure and one take-over on the way."""
        self.report("owner", token=3, run_id="first")
        self.report("running")
        for second in range(0, SLOTS * INTERVAL_S, INTERVAL_S):
            if self.is_timed:
                self._happen(second)
            is_down = SILENT_AT <= second <= TAKEN_OVER_AT or STOPPED_AT <= second <= BACK_AT
            if self.is_timed and is_down:
                self.lag += self.per_s * INTERVAL_S
            else:
                self._batch(second)
            self.clock.sleep(INTERVAL_S)

    def _happen(self, second: int) -> None:
        if second == TAKEN_OVER_AT:
            self.report("taking_over", why="silence")
            self.report("owner", token=4, run_id="second")
            self.report("running")
        if second == STOPPED_AT:
            text = "the brokers do not answer; expected an answer within 30 s"
            self.report("failed", error="RetriableError", text=text, exit_code=75)
        if second == BACK_AT:
            self.report("owner", token=5, run_id="third")
            self.report("running")
            self.report("batch", batch_id=self.batch_id, is_skipped=True)

    def _batch(self, second: int) -> None:
        wave = 1 + 0.25 * math.sin(second / 420) + self.dice.gauss(0, 0.04)
        came = self.per_s * INTERVAL_S * wave
        read = min(self.lag + came, 2.2 * self.per_s * INTERVAL_S)
        self.lag = self.lag + came - read + self.dice.random() * self.per_s * 0.1
        self.batch_id += 1
        took_s = 0.5 + 1.1 * read / (self.per_s * INTERVAL_S) + self.dice.random() * 0.3
        now_ms = self.clock.unix_ms()
        written = read / 14 if self.is_timed else read / 40
        self.history.note_holder("clicks" if self.is_timed else None)
        counts = {"read": round(read), "written": round(written)}
        counts |= {"rejected": int(self.dice.random() < 0.02), "refused": 0}
        self.report(
            "batch",
            batch_id=self.batch_id,
            is_skipped=False,
            records=counts,
            batch_timestamp_ms=now_ms - round(took_s * 1000),
            event_watermark_ms=now_ms - 14_000 - round(took_s * 1000) if self.is_timed else 0,
            newest_event_ms=now_ms - 2_000 if self.is_timed else None,
        )
        rows = round(4_100 + 900 * math.sin(second / 300))
        self.report(
            "progress",
            lag=round(self.lag),
            source_records={"clicks" if self.is_timed else "orders": round(read)},
            duration_ms={
                "latestOffset": 12 + 9 * self.dice.random(),
                "queryPlanning": 145 + 60 * self.dice.random(),
                "walCommit": 85 + 40 * self.dice.random(),
                "getBatch": 4,
                "addBatch": took_s * 700,
                "commitOffsets": 78 + 35 * self.dice.random(),
                "triggerExecution": took_s * 700 + 420,
            },
            **self._state(rows),
        )

    def _state(self, rows: float) -> dict[str, Any]:
        if not self.is_timed:
            return {"state_rows": 0, "state_memory_bytes": 0}
        updated = round(rows * 0.31)
        operator = {"name": "stateStoreSave", "rows": rows, "updated": updated, "dropped": 0}
        return {
            "state_rows": rows,
            "state_memory_bytes": 9_000_000 + rows * 900,
            "operators": [operator],
        }


def _heads(name: str, newest_id: int, now_ms: int, per_batch: int) -> list[HeadEntry]:
    read, written = 49_504 * per_batch // 5, 3_536 * per_batch // 5
    dice, totals, found = Random(3), RecordCounts(read=read, written=written), []
    for back in range(BATCHES, -1, -1):
        read = round(per_batch * (1 + 0.2 * math.sin(back / 9) + dice.gauss(0, 0.05)))
        records = RecordCounts(read=read, written=read // 14, rejected=int(back == 4))
        totals = totals + records
        at_ms = now_ms - back * INTERVAL_S * 1000 - 1_600
        found.append(
            HeadEntry(
                pipeline=name,
                generation=2,
                batch=BatchKey("query", newest_id - back),
                token=FencingToken(5),
                run_id="third",
                plan=BatchPlan(
                    {"clicks": {"clicks": dict.fromkeys(range(3), (0, 1000000))}},
                    at_ms - 14_000 if name == "page-views" else 0,
                    at_ms,
                ),
                sink=SinkState(name, 6, Layout(1, 3), {0: (1, 1)}),
                records=records,
                totals=totals,
                digest="d",
                plan_hash="h",
            )
        )
    return found


def _facts(name: str, source: str, hour: Hour, now_ms: int) -> Facts:
    heads = _heads(name, hour.batch_id, now_ms, round(hour.per_s * INTERVAL_S))
    layout = Layout(1, 3)
    return Facts(
        at_ms=now_ms,
        head=heads[-1],
        owner=OwnerEntry(FencingToken(5), "third", "onceflow-0", now_ms - 1_695_000, layout),
        recent=heads,
        inputs=[
            InputFacts(
                source=source,
                topic=source,
                partition=partition,
                position=20_468_037 + 311 * partition,
                last_stable_offset=20_468_037 + 311 * partition + round(hour.lag) // 3,
                high_watermark=20_468_037 + 311 * partition + round(hour.lag) // 3,
                newest_ms=now_ms - 700 - 200 * partition,
            )
            for partition in range(3)
        ],
        bulletin=Bulletin(
            run_id="third",
            host="onceflow-0",
            at_ms=now_ms,
            batch_id=hour.batch_id,
            batch_at_ms=now_ms,
            records_per_second=hour.per_s * 1.02,
            state=StateFigures(rows=4_316 if hour.is_timed else 0),
            memory_budget_bytes=2_000_000_000,
        ),
        event_time_sources=frozenset({source} if hour.is_timed else ()),
    )


def _letters(now_ms: int) -> Sequence[dict[str, Any]]:
    texts = (
        ("undecodable", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("undecodable", "not JSON: Expecting ',' delimiter: line 1 column 41 (char 40)"),
        ("undecodable", "not JSON: Unterminated string starting at: line 1 column 87 (char 86)"),
    )
    return [
        {
            "reason": reason,
            "text": text,
            "source": "clicks",
            "topic": "clicks",
            "partition": number % 3,
            "offset": 20_461_007 - 6_113 * number,
            "batch_id": 41_840 - 37 * number,
        }
        for number, (reason, text) in enumerate(texts)
    ]


@dataclass
class InventedSite:
    """Address of the page, and a token for each role."""

    address: str
    tokens: dict[Role, str]


@contextmanager
def invented_site(folder: Path) -> Iterator[InventedSite]:
    """A page of three pipelines is answered inside the block."""
    clock = ManualClock(round(NOW.timestamp() * 1000) - SLOTS * INTERVAL_S * 1000)
    entries = []
    for name, text in (("large-orders", ORDERS), ("page-views", PAGE_VIEWS), ("refunds", ORDERS)):
        path = folder / f"{name}.yaml"
        path.write_text(text)
        entries.append(Entry(name, path))
    makers = {entry.name: Maker() for entry in entries}
    makers["refunds"].faults.append(REFUSED)
    service = fake_service(entries, clock, makers)
    facts = _live_through(service, clock)
    tokens = {role: new_token() for role in Role}
    file = folder / "tokens"
    file.write_text("\n".join(line_of(token, role, "ann") for role, token in tokens.items()))

    def look(_: PipelineViews, name: str) -> Facts:
        if name in facts:
            return facts[name]
        raise REFUSED

    with ExitStack() as stack:
        stack.enter_context(patch.object(PipelineViews, "facts", look))
        letters = _letters(clock.unix_ms())
        stack.enter_context(patch.object(PipelineViews, "newest_dead_letters", lambda *_: letters))
        stack.enter_context(living_members([*service.fleet.members.values()]))
        # Requests are bounded by the time that passes.
        gate = Gate(Tokens(file), SystemClock(), lambda what, **_: None)
        app = control_app(PipelineViews(service), gate)
        port = stack.enter_context(answering(app, Endpoint(HERE, 0)))
        yield InventedSite(f"http://{HERE}:{port}", tokens)


def _live_through(service: Service, clock: ManualClock) -> dict[str, Facts]:
    began_ms, now_ms = clock.unix_ms(), round(NOW.timestamp() * 1000)
    views = Hour(service.histories["page-views"], clock, 1_240)
    # Both have the same hour: each history has a clock of its own that ends where the other does.
    other = ManualClock(began_ms)
    service.histories["large-orders"] = History(other)
    orders = Hour(service.histories["large-orders"], other, 310, is_timed=False)
    for hour in (views, orders):
        hour.pass_by()
    return {
        "page-views": _facts("page-views", "clicks", views, now_ms),
        "large-orders": _facts("large-orders", "orders", orders, now_ms),
    }
