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


def test_the_query_that_wrote_the_last_batch_goes_on() -> None:
    assert change_error(OLD, head(), facts(), is_accepted=False) is None


def test_another_query_is_refused_and_what_changed_is_named() -> None:
    error = change_error(NEW, head(), facts(), is_accepted=False)
    assert error is not None
    assert error.found == "changes of query, spark (4.0.1, now 4.1.0)"
    assert "--accept-change" in error.then


def test_a_part_that_comes_or_goes_is_named() -> None:
    more = QueryIdentity({**OLD.parts, "code": fingerprint({"a.py": ""})})
    assert more.changes_since(head()) == ["code (new)"]
    assert OLD.changes_since(head(more)) == ["code (removed)"]


def test_a_change_may_be_accepted_behind_a_batch_that_is_done() -> None:
    assert change_error(NEW, head(), facts(), is_accepted=True) is None


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


@pytest.mark.parametrize("is_accepted", [True, False])
def test_before_the_first_batch_everything_may_change(is_accepted: bool) -> None:
    blank = head(batch_id=NOTHING_COMMITTED)
    assert change_error(NEW, blank, facts(), is_accepted=is_accepted) is None


def test_an_entry_that_tells_no_parts_is_taken_as_it_is() -> None:
    old_version = replace(head(), plan_parts={})
    assert change_error(NEW, old_version, facts(), is_accepted=False) is None
