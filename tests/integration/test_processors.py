"""A pipeline with a processor: exactly once, through deaths at each kind of crash point."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from onceflow.crashpoints import CrashPoint
from onceflow.errors import RecordError
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import run_here, run_until_it_fails
from tests.support.jobs.cards import BAD, CardsJob
from tests.support.outside.history import read_topic

BATCH = 100
DEATHS = (
    (CrashPoint.AFTER_OFFSET_LOG, 2),
    (CrashPoint.BEFORE_COMMIT, 1),
    (CrashPoint.AFTER_COMMIT, 2),
    (CrashPoint.MID_PRODUCE, 2),
    (CrashPoint.AFTER_COMMIT, 1),
)
"""Where, and at which arrival of a start."""


def new_job(broker: RunningBroker, folder: Path) -> CardsJob:
    made = CardsJob(broker.bootstrap_servers, folder)
    made.create_input()
    return made


def test_state_and_timers_lose_and_repeat_nothing_whatever_crashed(
    broker: RunningBroker, tmp_path: Path
) -> None:
    job = new_job(broker, tmp_path)
    job.produce(Random(1), 900, 300)
    file = job.write_file(BATCH, f"dead_letter: {{topic: {job.letter_topic}}}\n")
    for point, arrivals in DEATHS:
        run_until_it_fails(file, job.bootstrap_servers, point, arrivals)
    job.close()
    run_here(file, job.bootstrap_servers)
    job.check()
    letters = read_topic(job.bootstrap_servers, job.letter_topic)
    cards = sorted(json.loads(each.value or b"")["card"] for each in letters)
    assert cards == sorted(p.card for p in job.produced if p.amount == BAD) != []
    assert job.heads()[-1]["totals"]["rejected"] == len(letters)


def test_a_record_that_fails_goes_to_the_dead_letters_as_it_came(
    broker: RunningBroker, tmp_path: Path
) -> None:
    job = new_job(broker, tmp_path)
    job.when = "arrival"
    job.produce(Random(3), 200, 60)
    file = job.write_file(BATCH, f"dead_letter: {{topic: {job.letter_topic}}}\n")
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.AFTER_COMMIT, 1)
    run_here(file, job.bootstrap_servers)
    letters = read_topic(job.bootstrap_servers, job.letter_topic)
    bad = [payment.to_json() for payment in job.produced if payment.amount == BAD]
    assert sorted(each.value or b"" for each in letters) == sorted(bad) != []


def test_a_record_that_fails_stops_the_pipeline_and_names_class_key_and_record(
    broker: RunningBroker, tmp_path: Path
) -> None:
    job = new_job(broker, tmp_path)
    job.when = "arrival"
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
