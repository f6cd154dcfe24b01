"""State of every kind goes on in other partitions and in other queries, as in a twin that stays.

The twin has the same input and is left alone. What both have written in the end must be the same:
none of it depends on where batches are cut.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.errors import ConfigError
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import QUICK, keep_engine, run_here
from tests.support.jobs.cards import FIRST, LATENESS, CardsJob
from tests.support.outside.history import read_topic

SESSION = replace(QUICK, shuffle_partitions=2)
SETTINGS = {"spark": {**SESSION.__dict__, "max_result_bytes": "256 MiB"}}
SOURCE = """\
    kafka: {{topics: [{input}], max_records_per_batch: 1000}}
    schema: "card STRING, shop STRING, amount BIGINT, at TIMESTAMP"
    event_time: at
    lateness: 5 seconds
"""
JOIN = f"""\
sources:
  payments:
{SOURCE}
  again:
{SOURCE}
query: |
  SELECT p.card, p.shop, p.amount, p.at, a.shop AS other, a.at AS later
  FROM payments p LEFT JOIN again a ON p.card = a.card AND a.amount = p.amount + 1
    AND a.at BETWEEN p.at AND p.at + INTERVAL 20 SECONDS
"""
SESSIONS = f"""\
sources:
  payments:
{SOURCE}
    deduplicate: {{{{key: [card, at], within: 1 hour}}}}
query: |
  SELECT card, session_window.start AS start, session_window.end AS until, count(*) AS n
  FROM payments GROUP BY card, session_window(at, '2 seconds')
"""
SQL = f"""\
sources:
  payments:
{SOURCE}
query: |
  SELECT shop, window.start AS start, count(*) AS n
  FROM payments GROUP BY shop, window(at, '20 seconds')
"""
UNIQUE = SQL.replace("query:", "    deduplicate: {{key: [card, at], within: 1 minute}}\nquery:")
PROCESS = f"""\
sources:
  payments:
{SOURCE}
process:
  shops: {{{{class: "{{module}}:{{kind}}", input: payments, when: watermark}}}}
query: SELECT * FROM shops
"""
CODE = '''\
from datetime import timedelta

from onceflow.processing import List, Map, Processor, Value


class Base(Processor):
    key = "shop"
    cards = Map("string", "bigint")
    output = "shop string, what string, n bigint, total bigint, recent int, cards int"

    def on_records(self, key, records):
        for record in records:
            self.count(record.amount)
            self.cards[record.card] = record.amount
            self.timers.cancel("quiet")
            self.timers.at(record.at + timedelta(seconds=3), "quiet")
        yield self.told(key, "records")

    def on_timer(self, key, at, name):
        yield self.told(key, name)

    def told(self, key, what):
        n, total = self.counted()
        return key, what, n, total, len(self.recent), len(self.cards)


class Shops(Base):
    seen = Value("n bigint, total bigint", default=(0, 0))
    recent = List("bigint", ttl="20 s")

    def count(self, amount):
        n, total = self.seen.get()
        self.seen.set((n + 1, total + amount))
        self.recent.append(amount)

    def counted(self):
        return self.seen.get()


class Renamed(Base):
    """The same with other state: numbers apart, and one of them as text."""

    n = Value("bigint", default=0)
    total = Value("string", default="0")
    recent = List("amount bigint, why string", ttl="20 s")

    def count(self, amount):
        self.n.set(self.n.get() + 1)
        self.total.set(str(int(self.total.get()) + amount))
        self.recent.append((amount, "new"))

    def counted(self):
        return self.n.get(), int(self.total.get())


def renamed(key, value):
    seen = value.pop("seen")
    recent = [
        {"value": {"amount": each["value"], "why": "old"}, "expires": each["expires"]}
        for each in value.pop("recent")
    ]
    return key, {**value, "n": seen["n"], "total": str(seen["total"]), "recent": recent}


def wrong(key, value):
    return key, {**value, "n": "many"}
'''


class Twins:
    """Two pipelines over one input."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.job = CardsJob(servers, folder)
        self.job.create_input()
        self.module = f"twins_{uuid.uuid4().hex[:8]}"
        (folder / f"{self.module}.py").write_text(CODE)
        (folder / "onceflow.yaml").write_text(json.dumps(SETTINGS))
        self.checkpoints = {each: str(folder / each) for each in ("stays", "moves")}
        self.seed = 0

    def name(self, which: str) -> str:
        return f"{self.job.name}-{which}"

    def write(self, which: str, text: str, kind: str = "Shops") -> Path:
        filled = text.format(input=self.job.input_topic, module=self.module, kind=kind)
        path = self.job.folder / f"{which}.yaml"
        path.write_text(
            f"apiVersion: onceflow/v1\nname: {self.name(which)}\n{filled}\n"
            f"sink: {{kafka: {{topic: {self.name(which)}, partitions: 2}}}}\n"
            f"checkpoint: {self.checkpoints[which]}\n"
        )
        return path

    def run(self, file: Path) -> None:
        """Read more of the input, and some of it again."""
        self.seed += 1
        newest = max((each.at for each in self.job.produced), default=FIRST)
        again = [each for each in self.job.produced if each.at > newest - LATENESS]
        self.job.send(again)
        self.job.produce(Random(self.seed), records=200, seconds=50, cards=5)
        run_here(file, self.job.bootstrap_servers, SESSION)

    def migrate(self, file: Path, *options: str) -> dict[str, Any]:
        where = ["--bootstrap-servers", self.job.bootstrap_servers, "-o", "json"]
        where += ["--config", str(self.job.folder / "onceflow.yaml"), "--reason", "a test"]
        told = CliRunner().invoke(build_app(), ["state", "migrate", str(file), *options, *where])
        if told.exception is not None:
            raise told.exception
        found = dict(json.loads(told.stdout))
        if not found["dry_run"]:
            self.checkpoints["moves"] = found["checkpoint"]
        return found

    def end(self, *files: Path) -> None:
        """Close all windows; both have written the same then."""
        self.job.close_windows()
        for file in files:
            run_here(file, self.job.bootstrap_servers, SESSION)
        stays, moves = self.written("stays"), self.written("moves")
        assert sum(stays.values()) > 10
        assert moves == stays

    def written(self, which: str) -> Counter[str]:
        found = read_topic(self.job.bootstrap_servers, self.name(which))
        return Counter(json.dumps(each.row, sort_keys=True) for each in found)


@pytest.fixture
def twins(broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Twins:
    keep_engine(monkeypatch, SESSION)
    return Twins(broker.bootstrap_servers, tmp_path)


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("text", "names"),
    [(JOIN, ["join"]), (SESSIONS, ["sessions", "deduplication"]), (PROCESS, ["shops"])],
    ids=["join", "sessions", "process"],
)
def test_state_of_every_kind_moves_to_other_partitions(
    twins: Twins, text: str, names: Sequence[str]
) -> None:
    moves = twins.write("moves", text)
    twins.run(moves)
    told = twins.migrate(moves, "--shuffle-partitions", "3")
    assert list(told["state"]) == names
    assert all(int(rows.split()[0]) >= 2 for rows in told["state"].values()), told["state"]
    twins.write("moves", text)
    twins.run(moves)
    twins.end(twins.write("stays", text), moves)


def test_an_operator_more_begins_without_state(twins: Twins) -> None:
    moves = twins.write("moves", SQL)
    twins.run(moves)
    twins.write("moves", UNIQUE)
    with pytest.raises(ConfigError, match=r"deduplication is new, and has no state.*--begin"):
        twins.migrate(moves, "--drop", "aggregation", "--begin", "aggregation")
    with pytest.raises(ConfigError, match="before, the query had no state called `dedup`"):
        twins.migrate(moves, "--drop", "dedup", "--begin", "deduplication")
    told = twins.migrate(moves, "--begin", "deduplication", "--dry-run")
    assert not Path(told["checkpoint"]).exists()
    told = twins.migrate(moves, "--begin", "deduplication")
    assert told["state"]["deduplication"] == "no rows: new"
    twins.write("moves", UNIQUE)
    twins.run(moves)
    twins.end(twins.write("stays", SQL), moves)


def test_state_of_a_processor_is_changed_by_a_function(twins: Twins) -> None:
    moves = twins.write("moves", PROCESS)
    twins.run(moves)
    twins.write("moves", PROCESS, "Renamed")
    with pytest.raises(ConfigError, match="shops: recent: bigint cannot become struct"):
        twins.migrate(moves, "--move", "shops:shops")
    with pytest.raises(ConfigError, match=r"wrong, key .*shop.*expected .*n: bigint.*seen"):
        twins.migrate(moves, "--with", f"{twins.module}:wrong")
    assert not Path(f"{twins.checkpoints['moves']}-wrong").exists()
    told = twins.migrate(
        moves, "--with", f"shops={twins.module}:renamed", "--shuffle-partitions", "3"
    )
    assert told["state"] == {"shops": f"3 rows, changed by {twins.module}:renamed"}
    twins.write("moves", PROCESS, "Renamed")
    twins.run(moves)
    twins.end(twins.write("stays", PROCESS), moves)
