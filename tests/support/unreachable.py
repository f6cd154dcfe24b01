"""A connector whose brokers never answer."""

from __future__ import annotations

from typing import Any

from onceflow.errors import DeadlineError


class _Silent:
    """Any client: whatever it is asked, nobody answers."""

    def __getattr__(self, name: str) -> Any:
        if name == "close":
            return lambda: None

        def ask(*_: object, **__: object) -> None:
            raise DeadlineError("nobody answers", subject=name)

        return ask


class UnreachableConnector:
    """Stands in for `contracts.Connector`."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: _Silent()
