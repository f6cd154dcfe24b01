"""How often the state is sampled, whatever a sample takes."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from onceflow.errors import RetriableError
from onceflow.runtime.state.sampling import MS_A_BATCH, StateSampler
from tests.support.clock import ManualClock
from tests.support.eventually import eventually


def sampled(sampler: StateSampler, reader: Mock, batches: range) -> list[int]:
    """The batches whose state is looked at."""
    found = []
    for batch in batches:
        before = reader.close.call_count
        sampler.begin(batch)
        if sampler.is_busy or reader.close.call_count > before:
            eventually(lambda: not sampler.is_busy)
            found.append(batch)
    return found


def test_what_takes_long_is_sampled_less_often() -> None:
    clock, reader, told = ManualClock(), Mock(), []

    def slow() -> list[Any]:
        clock.sleep(5 * MS_A_BATCH / 1000)
        return []

    def fail() -> list[Any]:
        clock.sleep(2 * MS_A_BATCH / 1000)
        raise RetriableError("the state cannot be read now")

    def report(event: str, /, **facts: Any) -> None:
        told.append(facts["text"])

    with StateSampler(reader, clock, report) as sampler:
        reader.layout.operators = slow
        assert sampled(sampler, reader, range(-1, 14)) == [0, 6, 12]
        reader.layout.operators = fail
        assert sampled(sampler, reader, range(14, 22)) == [18, 21]
    assert told == 2 * ["the state was not sampled: the state cannot be read now"]
    assert sampler.newest is None
