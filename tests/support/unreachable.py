"""A connector whose brokers never answer."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from onceflow.contracts.connector import Connector
from onceflow.errors import DeadlineError


class _Silent:
    """Any client: whatever it is asked, nobody answers."""

    def __getattr__(self, name: str) -> Any:
        if name == "close":
            return lambda: None

        def ask(*_: object, **__: object) -> None:
            raise DeadlineError("nobody answers", subject=name)

        return ask


def unreachable_connector() -> Connector:
    """Return a connector of which whatever it makes is silent."""
    silent: Any = lambda *_: _Silent()  # noqa: E731  of the type of every field
    return Connector(**dict.fromkeys((each.name for each in fields(Connector)), silent))
