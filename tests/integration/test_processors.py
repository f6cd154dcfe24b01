"""A pipeline with a processor: exactly once, through deaths at each kind of crash point."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from onceflow.crashpoints import CrashPoint
from onceflow.errors import ConfigError, RecordError
from onceflow.runtime.source.data_source import register
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import engine, run_here, run_until_it_fails, running_here
from tests.support.drivers.service import END_TIMEOUT_S
from tests.support.eventually import eventually
from tests.support.jobs.cards import BAD, CardsJob
from tests.support.jobs.windows import WindowsJob
from tests.support.outside.history import read_topic

BATCH = 100
DEATHS = (
    (CrashPoint.AFTER_OFFSET_LOG, 2),
    (CrashPoint.BEFORE_COMMIT, 1),
    (CrashPoint.AFTER_COMMIT, 2),
)
"""Where, and at which arrival of a start. `tests/faults/test_crash_points.py` has all points."""


def new_job(broker: RunningBroker, folder: Path) -> CardsJob:
    made = CardsJob(broker.bootstrap_servers, folder)
    made.create_input()
    return made


def test_state_and_timers_lose_and_repeat_nothing_whatever_crashed(
    broker: RunningBroker, tmp_path: Path
) -> None:
    job = new_job(broker, tmp_path)
    job.produce(Random(1), 900, 300)
    file = job.write_file(BATCH)
    for point, arrivals in DEATHS:
        run_until_it_fails(file, job.bootstrap_servers, point, arrivals)
    job.close_windows()
    run_here(file, job.bootstrap_servers)
    job.check()
    letters = read_topic(job.bootstrap_servers, job.letter_topic)
    cards = sorted(json.loads(each.value or b"")["card"] for each in letters)
    assert cards == sorted(p.card for p in job.produced if p.amount == BAD) != []
    assert job.heads()[-1]["totals"]["rejected"] == len(letters)


def test_windows_of_each_kind_lose_and_repeat_nothing_whatever_crashed(
    broker: RunningBroker, tmp_path: Path
) -> None:
    job = WindowsJob(broker.bootstrap_servers, tmp_path)
    job.create_input()
    job.produce(Random(7), 450, 150, cards=4)
    file = job.write_file(150)
    for point, arrivals in DEATHS[1:2]:
        run_until_it_fails(file, job.bootstrap_servers, point, arrivals)
    job.close_windows()
    run_here(file, job.bootstrap_servers)
    job.check()
    assert len(job.written()) > 30


def test_a_record_that_fails_goes_to_the_dead_letters_as_it_came(
    broker: RunningBroker, tmp_path: Path
) -> None:
    job = new_job(broker, tmp_path)
    job.when = "arrival"
    job.produce(Random(3), 200, 60)
    file = job.write_file(BATCH)
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.AFTER_COMMIT, 1)
    run_here(file, job.bootstrap_servers)
    letters = read_topic(job.bootstrap_servers, job.letter_topic)
    bad = [payment.to_json() for payment in job.produced if payment.amount == BAD]
    assert sorted(each.value or b"" for each in letters) == sorted(bad) != []


def test_a_record_that_fails_stops_the_pipeline_and_names_class_key_and_record(
    broker: RunningBroker, tmp_path: Path
) -> None:
    job = new_job(broker, tmp_path)
    job.when, job.keeps_failed = "arrival", False
    job.produce(Random(2), 50, 30)
    first = next(n for n, payment in enumerate(job.produced) if payment.amount == BAD)
    file = job.write_file(BATCH)
    with pytest.raises(RecordError) as caught:
        run_here(file, job.bootstrap_servers)
    told = str(caught.value)
    assert "the processor Cards failed" in told
    assert json.dumps({"card": job.produced[first].card}) in told
    assert "ValueError: an unlucky amount" in told
    assert job.written() == []


def test_timers_go_off_while_the_source_is_silent(broker: RunningBroker, tmp_path: Path) -> None:
    job = new_job(broker, tmp_path)
    job.quiet, job.source = timedelta(seconds=2), "    idle_after: 1 second"
    job.produce(Random(5), 50, 10)
    good = [payment for payment in job.produced if payment.amount != BAD]
    last = {payment.card: max(p.at for p in good if p.card == payment.card) for payment in good}
    expected = sorted([*(p.at for p in good), *(at + job.quiet for at in last.values())])

    def is_all_there() -> bool:
        rows = [each.row for each in job.written()]
        return len([row for row in rows if row["what"] == "record"]) == len(good) and all(
            any(row["card"] == card and row["what"] == "quiet" for row in rows if row["at"] > at)
            for card, at in ((card, at.isoformat()[:23]) for card, at in last.items())
        )

    with running_here(job.write_file(100), job.bootstrap_servers):
        eventually(is_all_there, timeout_s=END_TIMEOUT_S)
    assert max(each.row["at"] for each in job.written())[:19] == expected[-1].isoformat()[:19]


def test_late_records_are_counted_and_kept(broker: RunningBroker, tmp_path: Path) -> None:
    job = new_job(broker, tmp_path)
    job.produce(Random(6), 100, 30)
    job.close_windows()
    file = job.write_file(10_000, f"late: {{topic: {job.name}-late}}\n")
    run_here(file, job.bootstrap_servers)
    late = [replace(payment, amount=1) for payment in job.produced[:3]]
    job.send(late)
    del job.produced[-3:]
    run_here(file, job.bootstrap_servers)
    letters = read_topic(job.bootstrap_servers, f"{job.name}-late")
    assert sorted(each.value or b"" for each in letters) == sorted(p.to_json() for p in late)
    assert job.heads()[-1]["totals"]["late"] == 3


CHANGED = """\
from onceflow.processing import List, Map, Processor, Value


class Cards(Processor):
    key = "card"
    total = Value("n decimal(20,0), sum bigint, first bigint")
    shops = Map("string", "bigint")
    seen = Value("bigint", default=0)
    output = "card string, n decimal(20,0), sum bigint, shops bigint, seen bigint"

    def on_records(self, key, records):
        for record in records:
            n, total, first = self.total.get((0, 0, None))
            self.total.set(n=n + 1, sum=total + record.amount, first=first)
            self.seen.set(self.seen.get() + 1)
        n, total, _ = self.total.get()
        yield key, n, total, len(self.shops), self.seen.get()
"""


def test_state_goes_on_under_a_changed_class_and_what_cannot_is_refused(
    broker: RunningBroker, tmp_path: Path
) -> None:
    job = new_job(broker, tmp_path)
    job.produce(Random(4), 300, 60, cards=3)
    job.keeps_failed = False
    file = job.write_file(1000)
    good = [p for p in job.produced if p.amount != BAD]
    drop = file.read_text().replace("when: watermark", "when: arrival\n    on_reject: drop")
    file.write_text(drop)
    run_here(file, job.bootstrap_servers)
    use(file, "changed", CHANGED)
    newest = max(job.produced, key=lambda payment: payment.at)
    job.send([replace(good[0], at=newest.at)])
    with pytest.raises(ConfigError, match="this is not the query"):
        run_here(file, job.bootstrap_servers)
    events = run_here(
        file, job.bootstrap_servers, is_change_accepted=True, reason="another class for a test"
    )
    (told,) = [e["text"] for e in events.of_kind("warning") if "state of cards" in e["text"]]
    assert "dropped: recent" in told
    assert "added: seen" in told
    assert "becomes" in told
    (last,) = [each.row for each in job.written() if "seen" in each.row]
    card = [p for p in [*good, good[0]] if p.card == good[0].card]
    assert (int(last["n"]), last["sum"]) == (len(card), sum(p.amount for p in card))
    assert (last["shops"], last["seen"]) == (3, 1)
    other = CHANGED.replace("n decimal(20,0), sum bigint, first bigint", "string")
    use(file, "other", other)
    with pytest.raises(ConfigError, match=r"cannot go on.*total: struct.*cannot become string"):
        run_here(
            file, job.bootstrap_servers, is_change_accepted=True, reason="a class that does not fit"
        )
    use(file, "late", CHANGED + "\n    def on_initial(self, key, rows):\n        pass\n")
    block = '    initial_state: {file: cards.csv, columns: "card string"}'
    file.write_text(re.sub("(?m)^    input: payments$", rf"\g<0>\n{block}", file.read_text()))
    with pytest.raises(ConfigError, match="`initial_state` is read before the first batch only"):
        run_here(file, job.bootstrap_servers, is_change_accepted=True, reason="a state too late")


BALANCES = """\
from datetime import timedelta
from onceflow.processing import Processor, Value


class Cards(Processor):
    key = "card"
    balance = Value("bigint", default=0)
    output = "card string, what string, balance bigint"

    def on_initial(self, key, rows):
        for row in rows:
            self.balance.set(self.balance.get() + row.amount)
        self.timers.at(row.at + timedelta(seconds=1), "begun")

    def on_records(self, key, records):
        for record in records:
            self.balance.set(self.balance.get() + record.amount)
        yield key, "record", self.balance.get()

    def on_timer(self, key, at, name):
        yield key, name, self.balance.get()
"""


def test_state_begins_with_a_file_once_whatever_dies_in_the_first_batch(
    broker: RunningBroker, tmp_path: Path
) -> None:
    job = new_job(broker, tmp_path)
    job.produce(Random(7), 300, 60, cards=40)
    job.close_windows()
    file = job.write_file(100)
    columns = "card string, amount bigint, at timestamp"
    block = f'    initial_state: {{file: cards.csv, columns: "{columns}"}}'
    file.write_text(re.sub("(?m)^    input: payments$", rf"\g<0>\n{block}", file.read_text()))
    use(file, "balances", BALANCES)
    with pytest.raises(ConfigError, match=r"step cards, cards.csv.*No such file"):
        run_here(file, job.bootstrap_servers)
    begun = {f"card-{n}": 1_000 * (n + 1) for n in range(60)}
    lines = [f"{card},{half},2026-02-28T00:00:00Z" for card, n in begun.items() for half in (n, 1)]
    (tmp_path / "cards.csv").write_text("\n".join(["card,amount,at", *lines]))
    for point in (CrashPoint.AFTER_OFFSET_LOG, CrashPoint.BEFORE_COMMIT):
        run_until_it_fails(file, job.bootstrap_servers, point, 1)
        # It was copied before the first batch.
        (tmp_path / "cards.csv").write_text("gone")
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.AFTER_COMMIT, 1)
    run_here(file, job.bootstrap_servers)
    rows = [each.row for each in job.written()]
    timers = {row["card"]: row["balance"] for row in rows if row["what"] == "begun"}
    assert timers == {card: amount + 1 for card, amount in begun.items()}
    assert len(timers) == len([row for row in rows if row["what"] == "begun"])
    for card in {payment.card for payment in job.produced} - {"end"}:
        total = sum(each.amount for each in job.produced if each.card == card)
        balances = [row["balance"] for row in rows if row["card"] == card]
        assert max(balances) == begun[card] + 1 + total
    # The thread that began has no session of that pipeline in the way of the next one.
    register(engine().open_session(""))


def use(file: Path, name: str, code: str) -> None:
    """Have the step's class in another module: workers keep those that they have imported."""
    module = f"{file.parent.name.replace('-', '_')}_{name}"
    (file.parent / f"{module}.py").write_text(code)
    file.write_text(re.sub("class: .*:", f"class: {module}:", file.read_text()))
