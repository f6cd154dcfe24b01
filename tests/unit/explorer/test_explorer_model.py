"""The explorer's model of Kafka behaves as Kafka does, and its checks notice what they are for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onceflow.protocol.delivery import Delivery
from onceflow.protocol.identity import FencingToken, Layout
from onceflow.protocol.ledger import OwnerEntry
from tests.support.entries import head
from tests.support.explorer.checks import (
    PARTS,
    Append,
    Truth,
    on_append,
    on_commit,
    on_halt,
    on_spark_commit,
)
from tests.support.explorer.kafka import (
    FOREGROUND,
    NOBODY,
    HeadLog,
    Owner,
    Status,
    TransactionalId,
    Write,
)
from tests.support.explorer.product import Head
from tests.support.explorer.spark import Checkpoint, Plan

ME, OTHER = 0, 1
OPEN = TransactionalId(Status.ONGOING, ME, "content")
MINE = OwnerEntry(FencingToken(1), "R0", "host", 0, Layout(1, 2))
SINK = head(2, 0, 0).sink
BATCH_0, BATCH_1 = Head(head(0, 0, 10)), Head(head(1, 10, 20))
AFTER_0 = Truth((Plan(10, 0),), newest_reader=1)


def write(entry: Head, **changes: Any) -> Write:
    return Write(ME, entry, PARTS, entry.input, is_early=False)._replace(**changes)


# ---- Kafka


def test_a_decision_is_acknowledged_before_it_is_marked() -> None:
    decided = OPEN.commit_sent().commit_arrives()
    assert decided.is_acknowledged
    assert decided.is_undecided
    assert not decided.marked().is_undecided


def test_a_late_commit_ends_a_later_transaction_of_the_same_epoch() -> None:
    repeated = OPEN.commit_sent().commit_sent().commit_arrives().marked()
    later = repeated.opened("later")
    assert later.commit_arrives().status is Status.PREPARE_COMMIT


def test_a_late_commit_of_an_older_epoch_has_no_effect() -> None:
    fenced = OPEN.commit_sent().timed_out().marked()
    assert fenced.commits == 0
    assert fenced.holder == NOBODY


def test_an_initialisation_aborts_what_is_open_and_waits_for_markers() -> None:
    aborting = OPEN.initialised_by(OTHER)
    assert aborting is not None
    assert not aborting.is_done
    assert aborting.id.holder == NOBODY
    assert aborting.id.initialised_by(OTHER) is None
    done = aborting.id.marked().initialised_by(OTHER)
    assert done is not None
    assert done.is_done
    assert done.id.holder == OTHER


def test_an_initialisation_waits_for_a_commit_that_was_decided() -> None:
    decided = OPEN.commit_sent().commit_arrives()
    assert decided.initialised_by(OTHER) is None
    assert decided.marked().initialised_by(OTHER) is not None


def test_an_abort_that_arrives_late_aborts_what_is_open() -> None:
    assert OPEN._replace(aborts=1).abort_arrives().status is Status.PREPARE_ABORT


def test_a_claim_is_visible_only_when_it_is_marked() -> None:
    owner = Owner(OPEN._replace(content=MINE).commit_sent().commit_arrives())
    assert owner.entry is None
    assert owner.marked().entry == MINE


def test_a_read_of_owner_waits_for_a_claim_under_way_and_not_for_a_later_one() -> None:
    waiting = Owner(OPEN).read_begun(ME, FOREGROUND)
    assert not waiting.can_read(ME, FOREGROUND)
    assert waiting.can_read(OTHER, FOREGROUND)
    assert waiting.marked().can_read(ME, FOREGROUND)
    begun_before = Owner().read_begun(ME, FOREGROUND)._replace(id=OPEN)
    assert begun_before.can_read(ME, FOREGROUND)


def test_an_open_transaction_hides_what_was_committed_behind_it() -> None:
    log = HeadLog(BATCH_0).appended(0, BATCH_0).appended(1, BATCH_1).marked(1, is_commit=True)
    assert log.entry is BATCH_0
    reading = log.read_begun(ME)
    assert not reading.can_read(ME)
    decided = reading.marked(0, is_commit=False)
    assert decided.can_read(ME)
    assert decided.entry is BATCH_1


# ---- checks


@pytest.mark.parametrize(
    ("written", "truth", "kind"),
    [
        (write(BATCH_1, parts=PARTS - {"offsets"}), AFTER_0, "INCOMPLETE"),
        (write(BATCH_1), AFTER_0._replace(newest_reader=2), "ZOMBIE COMMIT"),
        (write(BATCH_0), AFTER_0, "DUPLICATE"),
        (write(BATCH_1), Truth(), "HOLE"),
        (write(BATCH_1, is_early=True), AFTER_0, "DISORDER"),
        (write(BATCH_1, rows_from=(10, 21)), AFTER_0, "FALSE LEDGER"),
        (write(Head(head(1, 11, 20))), AFTER_0, "INPUT LOST"),
        (write(Head(head(1, 9, 20))), AFTER_0, "INPUT TWICE"),
        (write(Head(replace(head(1, 10, 20), sink=head(2, 0, 0).sink))), AFTER_0, "SEQUENCE"),
        (write(Head(head(-1, 0, 0))), AFTER_0, "RESET"),
    ],
)
def test_a_wrong_commit_is_noticed(written: Write, truth: Truth, kind: str) -> None:
    violation, _ = on_commit(written, truth)
    assert violation is not None
    assert violation.startswith(kind)


def test_a_right_commit_is_remembered() -> None:
    violation, truth = on_commit(write(BATCH_1), AFTER_0)
    assert violation is None
    assert truth.committed == 1
    assert truth.end(1) == 20


LEAST, MOST = Delivery.AT_LEAST_ONCE, Delivery.AT_MOST_ONCE
RISKY = Head(replace(BATCH_1.entry, at_risk={0: (1, 2)}))
NAMELESS = Head(replace(BATCH_1.entry, at_risk={0: (2, 2)}))
BY_ME = AFTER_0._replace(writers=(ME,))
OTHER_PLAN = Head(replace(BATCH_0.entry, plan=replace(BATCH_0.entry.plan, batch_timestamp_ms=1)))


@pytest.mark.parametrize(
    ("delivery", "head", "truth", "kind"),
    [
        (LEAST, BATCH_1, AFTER_0.appended(Append(OTHER, BATCH_0)), "LOST"),
        (LEAST, BATCH_1, AFTER_0.appended(Append(OTHER, BATCH_1)), None),
        (MOST, BATCH_1, AFTER_0.appended(Append(OTHER, BATCH_0)), "UNNAMED: head of batch 1"),
        (MOST, NAMELESS, AFTER_0, "UNNAMED: batch 0"),
        (MOST, NAMELESS, AFTER_0.appended(Append(OTHER, BATCH_0)), None),
        (MOST, RISKY, AFTER_0, None),
    ],
)
def test_a_commit_without_what_its_mode_demands_is_noticed(
    delivery: Delivery, head: Head, truth: Truth, kind: str | None
) -> None:
    written = write(head, parts=PARTS - {"records"})
    violation, _ = on_commit(written, truth, delivery)
    assert (violation or "").startswith(kind or "")
    assert (violation is None) == (kind is None)
    assert (on_commit(written, truth)[0] or "").startswith("INCOMPLETE")


@pytest.mark.parametrize(
    ("delivery", "append", "truth", "kind"),
    [
        (LEAST, Append(ME, BATCH_0), AFTER_0.appended(Append(OTHER, BATCH_0)), None),
        (LEAST, Append(ME, BATCH_0), AFTER_0.appended(Append(OTHER, OTHER_PLAN)), "DIVERGES"),
        (LEAST, Append(ME, Head(head(2, 20, 30))), AFTER_0, "DISORDER"),
        (LEAST, Append(ME, Head(replace(head(1, 10, 20), sink=SINK))), AFTER_0, "SEQUENCE"),
        (MOST, Append(ME, BATCH_1), BY_ME, "EARLY"),
        (MOST, Append(OTHER, BATCH_0), BY_ME, "EARLY"),
        (MOST, Append(ME, BATCH_0), BY_ME, None),
        (MOST, Append(ME, BATCH_0), BY_ME.appended(Append(ME, BATCH_0)), "TWICE"),
    ],
)
def test_a_wrong_append_is_noticed(
    delivery: Delivery, append: Append, truth: Truth, kind: str | None
) -> None:
    violation, after = on_append(append, truth, delivery, may_differ=False)
    assert (violation or "").startswith(kind or "")
    assert (violation is None) == (kind is None)
    assert after.is_appended(append.head.batch)


def test_only_another_run_may_have_another_plan() -> None:
    for run, is_allowed in ((OTHER, True), (ME, False)):
        truth = AFTER_0.appended(Append(run, OTHER_PLAN))
        violation, _ = on_append(Append(ME, BATCH_0), truth, LEAST, may_differ=True)
        assert (violation is None) == is_allowed


@pytest.mark.parametrize(
    ("batch", "end", "kind"), [(1, 20, "SPARK AHEAD"), (0, 11, "STATE DIVERGES"), (0, 10, None)]
)
def test_a_wrong_entry_of_the_commit_log_is_noticed(batch: int, end: int, kind: str | None) -> None:
    violation = on_spark_commit(ME, batch, end, AFTER_0)
    assert (violation or "").startswith(kind or "")
    assert (violation is None) == (kind is None)


@pytest.mark.parametrize(
    ("owner", "plans", "is_false"),
    [
        (replace(MINE, run_id="R1"), (Plan(11, 0),), True),
        (None, (Plan(11, 0),), True),
        (MINE, (Plan(10, 0),), True),
        (MINE, (Plan(11, 0),), False),
        (MINE, (Plan(10, 1),), False),
        (MINE, (), False),
    ],
)
def test_a_false_halt_is_noticed(
    owner: OwnerEntry | None, plans: tuple[Plan, ...], is_false: bool
) -> None:
    violation = on_halt(ME, owner, Checkpoint(plans, 0 if plans else -1), AFTER_0)
    assert (violation is not None) == is_false
