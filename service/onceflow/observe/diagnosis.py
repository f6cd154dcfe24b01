"""Why a pipeline does not get on: from what can be seen of it to causes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, TypeAlias

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
    """One cause that applies, and `what` it does, in one sentence."""

    cause: StrEnum
    what: str
    evidence: tuple[str, ...]
    cure: str


Finding: TypeAlias = tuple[str, tuple[str, ...], str]
"""Fields of a `Diagnosis` after its cause."""


def diagnose(facts: Facts) -> list[Diagnosis]:
    """Every cause that applies, the most serious first. Empty: nothing holds the pipeline up."""
    return [Diagnosis(cause, *finding) for cause in Cause for finding in _RULES[cause](facts)]


def fields_of(
    findings: Sequence[Diagnosis], lag: int | None, blind: Mapping[str, str]
) -> Mapping[str, Any]:
    """The findings as plain data, with the records that wait and what could not be seen."""
    causes = [asdict(finding) for finding in findings]
    return {"causes": causes, "lag": lag, "not_seen": blind}


def _fenced(facts: Facts) -> Iterator[Finding]:
    owner, bulletin, ending = facts.owner, facts.bulletin, facts.ending
    if owner is None:
        return
    claim = f"owner: {owner.host}, token {owner.token}, run_id {owner.run_id}"
    cure = "let one deployment run it: the one that the ledger names goes on, stop the other"
    is_fresh = _is_fresh(facts)
    if bulletin and is_fresh and bulletin.run_id not in {"", owner.run_id}:
        seen = f"a run on {bulletin.host} with run_id {bulletin.run_id} still tells its figures"
        yield "a run works on that no longer owns the pipeline", (claim, seen), cure
    if ending is None or ending.exit_code != FencedError.exit_code:
        return
    age_ms = facts.at_ms - ending.at_ms
    if ending.run_id != owner.run_id and (age_ms <= FENCED_NEWS_MS or not is_fresh):
        seen = f"the run on {ending.host} ended {_ago(age_ms)}: {ending.message}"
        yield "a run ended because a newer one owns the pipeline", (claim, seen), cure


def _sink_refuses(facts: Facts) -> Iterator[Finding]:
    sink, output, ending = facts.head.sink, facts.output, _last_end(facts)
    what = f"the output topic {sink.topic} takes no records"
    lost = f"restore the topic, or, to write the output again, {NEW_GENERATION}"
    if ending and ending.what.startswith(SINK_FAILURES):
        told = f"{ending.error} {_ago(facts.at_ms - ending.at_ms)}: {ending.message}"
        cure = "correct what the message names (size limits, rights, replicas), then start it again"
        yield what, (told,), cure
    if output is None:
        return
    if output.topic_id is None:
        gone = f"there is no topic {sink.topic}, which the ledger knows as {sink.topic_id}"
        yield what, (gone,), lost
    elif sink.topic_id and output.topic_id != sink.topic_id:
        yield what, (f"topic id {output.topic_id}; the ledger has {sink.topic_id}",), lost
    elif output.in_sync < output.min_in_sync:
        few = f"{output.in_sync} replicas in sync; min.insync.replicas is {output.min_in_sync}"
        yield what, (few,), "bring the missing brokers back, or lower it"


def _stopped(facts: Facts) -> Iterator[Finding]:
    ending, bulletin = _last_end(facts), facts.bulletin
    what = "the pipeline is not running"
    start = "start it again: it goes on where it stopped, or says why it cannot"
    if ending and ending.exit_code != FencedError.exit_code:
        how = f"with exit code {ending.exit_code}: {ending.message}" if ending.error else "well"
        told = f"the run on {ending.host} ended {_ago(facts.at_ms - ending.at_ms)} {how}"
        cure = f"do what the message says, then {start}" if ending.error else start
        yield what, (told, facts.waiting), cure
    elif bulletin and not ending and not _is_fresh(facts):
        age = _ago(facts.at_ms - bulletin.at_ms)
        told = f"the last word of the run on {bulletin.host} came {age}"
        yield what, (told, facts.waiting), start


def _retention(facts: Facts) -> Iterator[Finding]:
    soon = [one for one in facts.forecasts if one.is_soon]
    bulletin = facts.bulletin
    if bulletin and _is_fresh(facts) and bulletin.retention_left_s is None:
        # It does not stand still, and is not overtaken as it moves.
        soon = [one for one in soon if one.left_s <= 0]
    if soon:
        verb = "overtakes" if min(one.left_s for one in soon) > 0 else "has overtaken"
        cure = "keep records longer and let it read on; to accept the loss of what is gone already"
        evidence = tuple(map(str, soon))
        yield f"the topic's retention {verb} the pipeline", evidence, f"{cure}, {NEW_GENERATION}"


def _hung_transaction(facts: Facts) -> Iterator[Finding]:
    return hung_transactions(facts.at_ms, facts.inputs, facts.transactions, facts.blind)


def hung_transactions(
    at_ms: int,
    inputs: Sequence[InputFacts],
    transactions: Sequence[OpenTransaction],
    blind: Mapping[str, str],
) -> Iterator[Finding]:
    """Open transactions that hold back a reader which has read all before them."""
    for one in inputs:
        if one.undecided == 0 or one.lag > 0:
            continue
        place = one.topic, one.partition
        holders = [t for t in transactions if (t.topic, t.partition) == place]
        holder = min(holders, key=lambda t: t.start_offset, default=None)
        since_ms = holder.started_ms if holder else one.undecided_ms
        if since_ms is None or at_ms - since_ms < HUNG_AFTER_MS:
            continue
        age = _age(at_ms - since_ms)
        held = (
            f"{one.name}: last stable offset {one.last_stable_offset}, {one.undecided:,} offsets"
            f" before the high watermark; the position is {one.position}"
        )
        unknown = blind.get("transactions", "its producer is gone from the partition")
        who = f"open for {age}; its producer is not known: {unknown}"
        if holder:
            who = _holder_text(holder, age)
        what = f"a producer's open transaction holds back {one.name}"
        yield what, (held, who), _transaction_cure(holder, one, at_ms)


def _holder_text(holder: OpenTransaction, age: str) -> str:
    name = holder.transactional_id or "unknown to every coordinator"
    coordinator = "none" if holder.coordinator is None else f"broker {holder.coordinator}"
    return (
        f"transactional id {name}, producer id {holder.producer_id}, producer epoch"
        f" {holder.producer_epoch}, open for {age}, coordinator: {coordinator}"
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


def _checkpoint_slow(facts: Facts) -> Iterator[Finding]:
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
        yield (
            "writing the checkpoint takes most of a batch",
            (f"batch {bulletin.batch_id}: {_batch_ms(bulletin):,} ms, of which {parts}",),
            "put the checkpoint on quicker storage; a batch writes some small files, one by one",
        )


def _state_too_large(facts: Facts) -> Iterator[Finding]:
    bulletin = facts.bulletin
    if bulletin is None:
        return
    state, budget = bulletin.state, bulletin.memory_budget_bytes
    spent_ms = state.commit_ms - state.upload_ms
    told = []
    if _dominates(spent_ms, bulletin):
        whole = f"batch {bulletin.batch_id}: {_batch_ms(bulletin):,} ms"
        told.append(f"{whole}, of which the state took {spent_ms:,} ms")
    if 0 < budget < state.memory_bytes:
        told.append(f"spark.driver_memory is {budget >> 20:,} MiB")
    if told:
        rows = []
        if state.rows is not None and bulletin.first_state_rows is not None:
            grown = state.rows - bulletin.first_state_rows
            rows = [f"{state.rows:,} rows of state, {grown:+,} since the run began"]
        memory = f"{state.memory_bytes >> 20:,} MiB of memory"
        cure = (
            "let it forget sooner (a smaller `lateness`, shorter windows, fewer keys), give it more"
            " memory, or lower `max_records_per_batch`; `onceflow state migrate` gives the state"
            " more partitions"
        )
        what = "the query keeps more state than a batch can work through"
        yield what, (*rows, memory, *told), cure


def _idle_input(facts: Facts) -> Iterator[Finding]:
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
    yield (
        f"source {holder.source} is idle and holds the watermark: windows stay open",
        (last, f"event watermark: {facts.head.plan.event_watermark_ms} ms, standing still"),
        f"let something be written to source {holder.source}, or give it `idle_after`",
    )


def _lag(facts: Facts) -> Iterator[Finding]:
    lag = facts.lag
    if not lag or _is_down(facts):
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
    what = f"the pipeline is behind by {lag:,} records: {eta_text(lag, rate, arrivals or 0)}"
    cure = (
        "wait if it catches up; else give it more cores, and look at where a batch's time goes"
        " (`duration_ms` of its progress)"
    )
    yield what, tuple(evidence), cure


def _is_much(facts: Facts, lag: int, batches: Sequence[HeadEntry]) -> bool:
    """Whether more waits than the next few batches read."""
    if capacity := _capacity(facts):
        return lag / capacity >= LAG_AFTER_S
    return lag > FEW_BATCHES * max((entry.records.read for entry in batches), default=0)


def _no_input(facts: Facts) -> Iterator[Finding]:
    if _is_down(facts) or facts.lag or facts.arrivals_per_s:
        return
    if not facts.inputs and not any(what.startswith("input") for what in facts.blind):
        yield (
            "nothing has been read yet",
            ("no batch was committed, so no position is known",),
            "look whether the input has records: the first batch begins with the first of them",
        )
    if not facts.inputs or any(one.undecided for one in facts.inputs):
        return
    newest_ms, name = max((one.newest_ms or 0, one.name) for one in facts.inputs)
    age_ms = facts.at_ms - newest_ms
    if age_ms >= QUIET_AFTER_MS:
        newest = f"the newest record, in {name}, is {_age(age_ms)} old"
        last = newest if newest_ms else "the input has no record"
        evidence = "every partition is read to its end", last
        cure = (
            "look at the producers of the input; windows close only when later records come,"
            " or after `idle_after`"
        )
        yield "there is nothing to read", evidence, cure


_RULES: Mapping[Cause, Callable[[Facts], Iterator[Finding]]] = {
    Cause.FENCED: _fenced,
    Cause.SINK_REFUSES: _sink_refuses,
    Cause.STOPPED: _stopped,
    Cause.RETENTION: _retention,
    Cause.HUNG_TRANSACTION: _hung_transaction,
    Cause.CHECKPOINT_SLOW: _checkpoint_slow,
    Cause.STATE_TOO_LARGE: _state_too_large,
    Cause.IDLE_INPUT: _idle_input,
    Cause.LAG: _lag,
    Cause.NO_INPUT: _no_input,
}


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


def _is_down(facts: Facts) -> bool:
    """Whether no run goes on, as far as is known; a pipeline without any bulletin may run."""
    return bool(_last_end(facts) or (facts.bulletin and not _is_fresh(facts)))


def _batch_ms(bulletin: Bulletin) -> int:
    return bulletin.duration_ms.get("triggerExecution", 0)


def _dominates(spent_ms: int, bulletin: Bulletin) -> bool:
    return spent_ms >= max(SLOW_MS, SLOW_SHARE * _batch_ms(bulletin))


def _stands_still(facts: Facts) -> bool:
    last = {entry.plan.event_watermark_ms for entry in facts.recent[-STILL_BATCHES:]}
    # Without the pipeline file, 0 may mean that the query has no watermark.
    return len(last) <= 1 and (facts.event_time_sources is not None or any(last))


def _capacity(facts: Facts) -> float:
    """Records per second while a batch runs; 0 if unknown."""
    return (facts.bulletin and facts.bulletin.records_per_second) or 0.0


def _committed_rate(batches: Sequence[HeadEntry]) -> float:
    if len(batches) < 2:
        return 0.0
    passed_ms = batches[-1].plan.batch_timestamp_ms - batches[0].plan.batch_timestamp_ms
    read = sum(entry.records.read for entry in batches[1:])
    return read * 1000 / passed_ms if passed_ms > 0 else 0.0


def eta_text(lag: int, rate: float, arrivals: float) -> str:
    """When a lag is gone, at these records per second."""
    if not rate:
        return "no batch has been committed lately"
    if rate <= arrivals:
        return "it never catches up at this rate"
    return f"caught up in {span_text(lag / (rate - arrivals))} at this rate"


def _age(milliseconds: int) -> str:
    return span_text(max(0, milliseconds) / 1000)


def _ago(milliseconds: int) -> str:
    return f"{_age(milliseconds)} ago"
