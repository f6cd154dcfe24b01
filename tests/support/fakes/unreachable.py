"""A service around which nothing answers: its pipelines are fakes, its brokers out of reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from random import Random
from typing import Any

from onceflow.app import RunOptions
from onceflow.clock import Clock, SystemClock
from onceflow.contracts.connector import Connection, Connector
from onceflow.errors import DeadlineError
from onceflow.pipeline.file.policies import Restart
from onceflow.run import Surroundings
from onceflow.serve.fleet import Fleet, Member
from onceflow.serve.restarts import Restarts
from onceflow.serving import Entry, Service
from onceflow.settings import Settings
from tests.support.drivers.here import QUICK
from tests.support.fakes.runs import Maker

HERE = "127.0.0.1"


class _Silent:
    """Any client: no request is answered."""

    def __getattr__(self, name: str) -> Any:
        if name == "close":
            return lambda: None

        def ask(*_: object, **__: object) -> None:
            raise DeadlineError("no one answers", subject=name)

        return ask


def unreachable_connector() -> Connector:
    """Return a connector whose clients are all silent."""
    silent: Any = lambda *_: _Silent()  # noqa: E731  of the type of every field
    return Connector(**dict.fromkeys((each.name for each in fields(Connector)), silent))


def fake_service(
    entries: Sequence[Entry], clock: Clock, makers: Mapping[str, Maker], values: Sequence[Any] = ()
) -> Service:
    """A service whose pipelines are made by `makers`, by their names."""
    spare = Maker()
    around = Surroundings(
        connector=unreachable_connector(),
        connection=Connection(HERE),
        session=QUICK,
        clock=clock,
        report=lambda event, /, **facts: None,
    )
    service = Service(
        entries,
        Settings(),
        values,
        around,
        RunOptions(),
        lambda name: makers.get(name, spare).listen,
    )
    members = [
        Member(name, maker, Restarts(Restart(), SystemClock(), Random(1)), maker.listen)
        for name, maker in makers.items()
    ]
    service.fleet = Fleet(members, lambda: None, SystemClock())
    return service


@contextmanager
def living_members(members: Sequence[Member]) -> Iterator[None]:
    """They live inside the block."""
    for member in members:
        member.begin()
    try:
        yield
    finally:
        for member in members:
            member.end()
        assert all(member.has_ended(60) for member in members)
