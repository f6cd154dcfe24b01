"""A start notices another query, says what changed, and when that may be accepted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onceflow.protocol.compare import CheckpointFacts
from onceflow.protocol.ledger import NOTHING_COMMITTED, HeadEntry
from onceflow.protocol.query_identity import QueryIdentity, change_error, fingerprint
from tests.support import entries

OLD = QueryIdentity({"query": fingerprint("SELECT 1"), "spark": "4.0.1", "sink": fingerprint({})})
NEW = QueryIdentity({"query": fingerprint("SELECT 2"), "spark": "4.1.0", "sink": fingerprint({})})


def head(identity: QueryIdentity = OLD, batch_id: int = 5) -> HeadEntry:
    entry = entries.head(batch_id, 0, 10)
    return replace(entry, plan_hash=identity.hash, plan_parts=identity.parts)


def facts(done: int = 5) -> CheckpointFacts:
    return CheckpointFacts("query-1", planned=5, done=done)


def test_the_hash_does_not_depend_on_the_order_of_its_parts() -> None:
    assert QueryIdentity({"a": "1", "b": "2"}).hash == QueryIdentity({"b": "2", "a": "1"}).hash
    assert QueryIdentity({"a": "1", "b": "2"}).hash != QueryIdentity({"a": "1", "b": "3"}).hash


@pytest.mark.parametrize(
    ("now", "before", "is_accepted"),
    [
        (OLD, head(), False),
        (NEW, head(), True),
        (NEW, replace(head(), plan_parts={}), False),
        (NEW, head(batch_id=NOTHING_COMMITTED), True),
        (NEW, head(batch_id=NOTHING_COMMITTED), False),
    ],
    ids=["the same", "accepted", "an entry without parts", "no batch, accepted", "no batch"],
)
def test_a_start_is_not_refused(now: QueryIdentity, before: HeadEntry, is_accepted: bool) -> None:
    assert change_error(now, before, facts(), is_accepted=is_accepted) is None


def test_another_query_is_refused_and_what_changed_is_named() -> None:
    error = change_error(NEW, head(), facts(), is_accepted=False)
    assert error is not None
    assert error.found == "changes of query, spark (4.0.1, now 4.1.0)"
    assert "--accept-change" in error.then


def test_a_part_that_comes_or_goes_is_named() -> None:
    more = QueryIdentity({**OLD.parts, "code": fingerprint({"a.py": ""})})
    assert more.changes_since(head()) == ["code (new)"]
    assert OLD.changes_since(head(more)) == ["code (removed)"]


def test_a_batch_that_is_to_be_replayed_must_be_by_the_old_query() -> None:
    error = change_error(NEW, head(), facts(done=4), is_accepted=True)
    assert error is not None
    assert "batch 5 in the checkpoint's commit log" in str(error)
    assert "run it as it was" in error.then


@pytest.mark.parametrize(("done", "is_refused"), [(5, False), (4, True)])
def test_another_delivery_waits_until_no_batch_is_planned(done: int, is_refused: bool) -> None:
    before = QueryIdentity({**OLD.parts, "delivery": fingerprint("at_least_once")})
    after = QueryIdentity({**OLD.parts, "delivery": fingerprint("exactly_once")})
    entry = head(before, batch_id=4)
    error = change_error(after, entry, facts(done), is_accepted=True)
    assert (error is not None) is is_refused
    assert error is None or "finished in the mode in which it was begun" in str(error)
    told = change_error(after, entry, facts(done), is_accepted=False)
    assert told is not None
    assert told.found == "changes of delivery"
    other = QueryIdentity({**before.parts, "query": fingerprint("SELECT 2")})
    assert change_error(other, entry, facts(done), is_accepted=True) is None


def test_nothing_to_accept_is_said() -> None:
    error = change_error(OLD, head(), facts(), is_accepted=True)
    assert error is not None
    assert "this remedy does not apply" in str(error)
