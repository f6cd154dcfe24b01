"""Why a pipeline does not get on: from what can be seen of it to causes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from onceflow.contracts.connector import OpenTransaction
from onceflow.errors import NEW_GENERATION, FencedError
from onceflow.observe.facts import Facts, InputFacts, watermark_holder
from onceflow.protocol.bulletin import Bulletin, Ending
from onceflow.protocol.ledger import NOTHING_COMMITTED, HeadEntry
from onceflow.texts import span_text

SILENT_AFTER_MS = 60_000
"""Without a bulletin for this long, sixty in a row, the pipeline counts as not running."""
FENCED_NEWS_MS = 600_000
"""A fenced instance is news this long although its successor is well."""
HUNG_AFTER_MS = 10_000
"""Transactions of producers that are well are open for less."""
QUIET_AFTER_MS = 10_000
"""Input without a record for this long is idle."""
LAG_AFTER_S = 10.0
"""Of work that waits: more than a few batches,"""
FEW_BATCHES = 3
"""which is the measure while the rate is unknown."""
SLOW_MS = 1_000
"""A batch that loses less to one thing is not held up by it,"""
SLOW_SHARE = 0.5
"""nor one that loses a smaller share to it."""
STILL_BATCHES = 3
"""The watermark has stood still in this many batches in a row."""

SINK_FAILURES = (
    "cannot initialise a transactional id",
    "cannot send offsets",
    "cannot write",
    "no lane became ready",
    "the output topic was deleted",
)
"""Beginnings of what a run says that the sink has ended."""


class Cause(StrEnum):
    """Causes that can hold a pipeline up, the most serious first."""

    FENCED = "fenced"
    SINK_REFUSES = "sink refuses"
    STOPPED = "not running"
    RETENTION = "retention"
    HUNG_TRANSACTION = "hung transaction"
    CHECKPOINT_SLOW = "checkpoint storage slow"
    STATE_TOO_LARGE = "state too large"
    IDLE_INPUT = "idle input"
    LAG = "lag"
    NO_INPUT = "no input"


@dataclass(frozen=True)
class Diagnosis:
    """One cause that applies.

    Args:
        cause: which.
        what: that it applies, in one sentence.
    """

    cause: Cause
    what: str
    evidence: tuple[str, ...]
    cure: str


def diagnose(facts: Facts) -> list[Diagnosis]:
    """Every cause that applies, the most serious first. Empty: nothing holds the pipeline up."""
    found = [finding for rule in _RULES for finding in rule(facts)]
    return sorted(found, key=lambda finding: [*Cause].index(finding.cause))


def _fenced(facts: Facts) -> Iterator[Diagnosis]:
    owner, bulletin, ending = facts.owner, facts.bulletin, facts.ending
    if owner is None:
        return
    claim = f"owner: {owner.host}, token {owner.token}, run_id {owner.run_id}"
    cure = "let one deployment run it: the one that the ledger names goes on, stop the other"
    if bulletin and _is_fresh(facts) and bulletin.run_id not in {"", owner.run_id}:
        seen = f"a run on {bulletin.host} with run_id {bulletin.run_id} still tells its figures"
        yield Diagnosis(
            Cause.FENCED, "a run works on that no longer owns the pipeline", (claim, seen), cure
        )
    if ending is None or ending.exit_code != FencedError.exit_code:
        return
    age_ms = facts.at_ms - ending.at_ms
    if ending.run_id != owner.run_id and (age_ms <= FENCED_NEWS_MS or not _is_fresh(facts)):
        seen = f"the run on {ending.host} ended {_ago(age_ms)}: {ending.message}"
        yield Diagnosis(
            Cause.FENCED, "a run ended because a newer one owns the pipeline", (claim, seen), cure
        )


def _sink_refuses(facts: Facts) -> Iterator[Diagnosis]:
    sink, output, ending = facts.head.sink, facts.output, _last_end(facts)
    what = f"the output topic {sink.topic} takes no records"
    if ending and ending.what.startswith(SINK_FAILURES):
        yield Diagnosis(
            Cause.SINK_REFUSES,
            what,
            (f"{ending.error} {_ago(facts.at_ms - ending.at_ms)}: {ending.message}",),
            "correct what the message names (size limits, rights, replicas), then start it again",
        )
    if output is None:
        return
    if output.topic_id is None:
        evidence = f"there is no topic {sink.topic}, which the ledger knows as {sink.topic_id}"
        yield Diagnosis(Cause.SINK_REFUSES, what, (evidence,), _LOST_OUTPUT)
    elif sink.topic_id and output.topic_id != sink.topic_id:
        evidence = f"topic id {output.topic_id}; the ledger has {sink.topic_id}"
        yield Diagnosis(Cause.SINK_REFUSES, what, (evidence,), _LOST_OUTPUT)
    elif output.in_sync < output.min_in_sync:
        evidence = f"{output.in_sync} replicas in sync; min.insync.replicas is {output.min_in_sync}"
        yield Diagnosis(
            Cause.SINK_REFUSES, what, (evidence,), "bring the missing brokers back, or lower it"
        )


_LOST_OUTPUT = f"restore the topic, or, to write the output again, {NEW_GENERATION}"


def _stopped(facts: Facts) -> Iterator[Diagnosis]:
    ending, bulletin = _last_end(facts), facts.bulletin
    if ending and ending.exit_code == FencedError.exit_code:
        return
    if ending:
        how = f"with exit code {ending.exit_code}: {ending.message}" if ending.error else "well"
        told = f"the run on {ending.host} ended {_ago(facts.at_ms - ending.at_ms)} {how}"
        cure = f"do what the message says, then {_START}" if ending.error else _START
        yield Diagnosis(Cause.STOPPED, "the pipeline is not running", (told, facts.waiting), cure)
    elif bulletin and not _is_fresh(facts):
        told = (
            f"the last word of the run on {bulletin.host} came {_ago(facts.at_ms - bulletin.at_ms)}"
        )
        yield Diagnosis(Cause.STOPPED, "the pipeline is not running", (told, facts.waiting), _START)


_START = "start it again: it goes on where it stopped, or says why it cannot"


def _retention(facts: Facts) -> Iterator[Diagnosis]:
    soon = [one for one in facts.forecasts if one.is_soon]
    bulletin = facts.bulletin
    if bulletin and _is_fresh(facts) and bulletin.retention_left_s is None:
        # It does not stand still, and is not overtaken as it moves.
        soon = [one for one in soon if one.left_s <= 0]
    if soon:
        yield Diagnosis(
            Cause.RETENTION,
            "the topic's retention overtakes the pipeline"
            if min(one.left_s for one in soon) > 0
            else "the topic's retention has overtaken the pipeline",
            tuple(map(str, soon)),
            "keep records longer and let it read on; to accept the loss of what is gone already,"
            f" {NEW_GENERATION}",
        )


def _hung_transaction(facts: Facts) -> Iterator[Diagnosis]:
    for one in facts.inputs:
        if one.undecided == 0 or one.lag > 0:
            continue
        holders = [
            t for t in facts.transactions if (t.topic, t.partition) == (one.topic, one.partition)
        ]
        holder = min(holders, key=lambda t: t.start_offset, default=None)
        since_ms = holder.started_ms if holder else one.undecided_ms
        if since_ms is None or facts.at_ms - since_ms < HUNG_AFTER_MS:
            continue
        held = (
            f"{one.name}: last stable offset {one.last_stable_offset}, {one.undecided:,} offsets"
            f" before the high watermark; the pipeline is at {one.position}"
        )
        unknown = facts.blind.get("transactions", "its producer is gone from the partition")
        who = (
            _holder_text(holder, facts.at_ms)
            if holder
            else f"open for {_age(facts.at_ms - since_ms)}; its producer is not known: {unknown}"
        )
        yield Diagnosis(
            Cause.HUNG_TRANSACTION,
            f"a producer's open transaction holds back {one.name}",
            (held, who),
            _transaction_cure(holder, one, facts.at_ms),
        )


def _holder_text(holder: OpenTransaction, at_ms: int) -> str:
    name = holder.transactional_id or "unknown to every coordinator"
    coordinator = "none" if holder.coordinator is None else f"broker {holder.coordinator}"
    return (
        f"transactional id {name}, producer id {holder.producer_id}, producer epoch"
        f" {holder.producer_epoch}, open for {_age(at_ms - holder.started_ms)},"
        f" coordinator: {coordinator}"
    )


def _transaction_cure(holder: OpenTransaction | None, one: InputFacts, at_ms: int) -> str:
    start = holder.start_offset if holder else one.last_stable_offset
    abort = (
        f"kafka-transactions.sh abort --topic {one.topic} --partition {one.partition}"
        f" --start-offset {start}"
    )
    if holder is None or holder.timeout_ms is None:
        return f"no coordinator will end it: {abort}"
    left_ms = holder.started_ms + holder.timeout_ms - at_ms
    if left_ms <= 0:
        return f"its time is up and it is still open: {abort}"
    return (
        "restart the producer of that transactional id, which ends it; else its coordinator does"
        f" so in {_age(left_ms)}; at once: {abort}"
    )


def _checkpoint_slow(facts: Facts) -> Iterator[Diagnosis]:
    bulletin = facts.bulletin
    if bulletin is None:
        return
    spent = {
        "offset log": bulletin.duration_ms.get("walCommit", 0),
        "commit log": bulletin.duration_ms.get("commitOffsets", 0),
        "state files": bulletin.state.upload_ms,
    }
    if _dominates(sum(spent.values()), bulletin):
        parts = ", ".join(f"{name} {ms:,} ms" for name, ms in spent.items())
        yield Diagnosis(
            Cause.CHECKPOINT_SLOW,
            "writing the checkpoint takes most of a batch",
            (f"batch {bulletin.batch_id}: {_batch_ms(bulletin):,} ms, of which {parts}",),
            "put the checkpoint on quicker storage; a batch writes some small files, one by one",
        )


def _state_too_large(facts: Facts) -> Iterator[Diagnosis]:
    bulletin = facts.bulletin
    if bulletin is None:
        return
    state, budget = bulletin.state, bulletin.memory_budget_bytes
    spent_ms = state.commit_ms - state.upload_ms
    grown = state.rows - bulletin.first_state_rows
    evidence = [
        f"{state.rows:,} rows of state, {grown:+,} since the run's first batch",
        f"{state.memory_bytes >> 20:,} MiB of memory",
    ]
    is_slow = _dominates(spent_ms, bulletin)
    if is_slow:
        evidence.append(
            f"batch {bulletin.batch_id}: {_batch_ms(bulletin):,} ms,"
            f" of which the state took {spent_ms:,} ms"
        )
    if 0 < budget < state.memory_bytes:
        evidence.append(f"spark.driver_memory is {budget >> 20:,} MiB")
    elif not is_slow:
        return
    yield Diagnosis(
        Cause.STATE_TOO_LARGE,
        "the query keeps more state than a batch can work through",
        tuple(evidence),
        "let it forget sooner (a smaller `lateness`, shorter windows, fewer keys), give it more"
        " memory, or lower `max_records_per_batch`; more partitions of state"
        " (`spark.shuffle_partitions`, pinned at the first start) need a new generation",
    )


def _idle_input(facts: Facts) -> Iterator[Diagnosis]:
    holder = watermark_holder(facts)
    sources = {one.source for one in facts.inputs}
    if facts.event_time_sources is not None:
        sources &= facts.event_time_sources
    if holder is None or len(sources) < 2 or not _stands_still(facts):
        return
    own = [one for one in facts.inputs if one.source == holder.source]
    has_events = any(one.newest_ms is not None for one in facts.inputs)
    is_behind = holder.behind_ms is None or holder.behind_ms >= QUIET_AFTER_MS
    if not is_behind or not has_events or any(one.lag or one.undecided for one in own):
        return
    last = (
        f"the newest record of source {holder.source} is in {holder.place},"
        f" {_age(holder.behind_ms or 0)} older than that of the other input"
        if holder.place
        else f"source {holder.source} has no record at all"
    )
    yield Diagnosis(
        Cause.IDLE_INPUT,
        f"source {holder.source} is idle and holds the watermark: windows stay open",
        (last, f"event watermark: {facts.head.plan.event_watermark_ms} ms, standing still"),
        f"let something be written to source {holder.source}, or give it `idle_after`",
    )


def _lag(facts: Facts) -> Iterator[Diagnosis]:
    lag = facts.lag
    if not lag or _last_end(facts) or (facts.bulletin and not _is_fresh(facts)):
        return
    batches = [entry for entry in facts.recent if entry.batch.batch_id != NOTHING_COMMITTED]
    last_ms = facts.at_ms - batches[-1].plan.batch_timestamp_ms if batches else None
    if not _is_much(facts, lag, batches) and last_ms is not None and last_ms < SILENT_AFTER_MS:
        return
    rate, arrivals = _capacity(facts) or _committed_rate(batches), facts.arrivals_per_s
    worst = max(facts.inputs, key=lambda one: one.lag)
    evidence = [
        f"{lag:,} records wait, most in {worst.name}: {worst.lag:,}",
        "no batch was committed" if last_ms is None else f"the last batch began {_ago(last_ms)}",
    ]
    if rate:
        evidence.append(f"reads {rate:,.0f} records/s")
    if arrivals is not None:
        evidence.append(f"{arrivals:,.0f} records/s come in")
    yield Diagnosis(
        Cause.LAG,
        f"the pipeline is behind by {lag:,} records: {_eta(lag, rate, arrivals or 0)}",
        tuple(evidence),
        "wait if it catches up; else give it more cores, and look at where a batch's time goes"
        " (`duration_ms` of its progress)",
    )


def _is_much(facts: Facts, lag: int, batches: Sequence[HeadEntry]) -> bool:
    """Whether more waits than the next few batches read."""
    if capacity := _capacity(facts):
        return lag / capacity >= LAG_AFTER_S
    return lag > FEW_BATCHES * max((entry.records.read for entry in batches), default=0)


def _no_input(facts: Facts) -> Iterator[Diagnosis]:
    if _last_end(facts) or (facts.bulletin and not _is_fresh(facts)):
        return
    if any(one.lag or one.undecided for one in facts.inputs) or facts.arrivals_per_s:
        return
    if not facts.inputs:
        if not any(what.startswith("input") for what in facts.blind):
            yield Diagnosis(
                Cause.NO_INPUT,
                "nothing has been read yet",
                ("no batch was committed, so no position is known",),
                "look whether the input has records: the first batch begins with the first of them",
            )
        return
    newest = max(
        (one for one in facts.inputs if one.newest_ms is not None), key=_newest_ms, default=None
    )
    age_ms = None if newest is None else facts.at_ms - _newest_ms(newest)
    if age_ms is not None and age_ms < QUIET_AFTER_MS:
        return
    last = (
        f"the newest record, in {newest.name}, is {_age(age_ms or 0)} old"
        if newest
        else "the input has no record"
    )
    yield Diagnosis(
        Cause.NO_INPUT,
        "there is nothing to read",
        ("every partition is read to its end", last),
        "look at the producers of the input; windows close only when later records come,"
        " or after `idle_after`",
    )


_RULES: Sequence[Callable[[Facts], Iterator[Diagnosis]]] = (
    _fenced,
    _sink_refuses,
    _stopped,
    _retention,
    _hung_transaction,
    _checkpoint_slow,
    _state_too_large,
    _idle_input,
    _lag,
    _no_input,
)


def _is_fresh(facts: Facts) -> bool:
    """Whether the pipeline runs, as far as bulletins tell."""
    bulletin = facts.bulletin
    return bulletin is not None and facts.at_ms - bulletin.at_ms < SILENT_AFTER_MS


def _last_end(facts: Facts) -> Ending | None:
    """The newest end, if no other run has told anything since."""
    ending, bulletin = facts.ending, facts.bulletin
    if ending is None or (bulletin and bulletin.at_ms > ending.at_ms):
        return None
    if bulletin and _is_fresh(facts) and bulletin.run_id != ending.run_id:
        return None
    return ending


def _batch_ms(bulletin: Bulletin) -> int:
    return bulletin.duration_ms.get("triggerExecution", 0)


def _dominates(spent_ms: int, bulletin: Bulletin) -> bool:
    return spent_ms >= max(SLOW_MS, SLOW_SHARE * _batch_ms(bulletin))


def _stands_still(facts: Facts) -> bool:
    last = [entry.plan.event_watermark_ms for entry in facts.recent[-STILL_BATCHES:]]
    if facts.event_time_sources is None and not any(last):
        # Without the pipeline file: perhaps the query has no watermark.
        return False
    return len({*last}) <= 1


def _capacity(facts: Facts) -> float:
    """Records per second while a batch runs; 0 if unknown."""
    return (facts.bulletin and facts.bulletin.records_per_second) or 0.0


def _committed_rate(batches: Sequence[HeadEntry]) -> float:
    if len(batches) < 2:
        return 0.0
    passed_ms = batches[-1].plan.batch_timestamp_ms - batches[0].plan.batch_timestamp_ms
    read = sum(entry.records.read for entry in batches[1:])
    return read * 1000 / passed_ms if passed_ms > 0 else 0.0


def _eta(lag: int, rate: float, arrivals: float) -> str:
    if not rate:
        return "no batch has been committed lately"
    if rate <= arrivals:
        return "it never catches up at this rate"
    return f"caught up in {span_text(lag / (rate - arrivals))} at this rate"


def _newest_ms(one: InputFacts) -> int:
    return one.newest_ms or 0


def _age(milliseconds: int) -> str:
    return span_text(max(0, milliseconds) / 1000)


def _ago(milliseconds: int) -> str:
    return f"{_age(milliseconds)} ago"
