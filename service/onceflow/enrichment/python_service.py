"""A Python coroutine as the service that is asked."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from onceflow.columns import Columns, Scalar
from onceflow.contracts.record import Record
from onceflow.contracts.target import Values
from onceflow.errors import ConfigError, OnceflowError, OutcomeUnknownError
from onceflow.pipeline.file.imports import code_error, import_named

WHERE = "ask.python.coroutine"


class PythonService:
    """Implements `contracts.service.Service`. Imports the user's module at the first question.

    Args:
        name: `module:coroutine`.
        folder: of the enrichment file, which comes first on the search path.
        max_bytes: of an answer as JSON.
    """

    def __init__(
        self, name: str, folder: Path, columns: Columns, timeout_s: float, max_bytes: int
    ) -> None:
        self._name = name
        self._folder = folder
        self._columns = columns
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._function: Callable[[Mapping[str, Any]], Awaitable[Any]] | None = None

    def question(self, _record: Record, row: Values) -> Values:
        """The values of the row."""
        return row

    async def ask(self, question: Values) -> bytes:
        """Await the coroutine with the row by name; see `docs/enrichment.md` for its errors."""
        if self._function is None:
            self._function = self._imported()
        kinds = self._columns.by_name
        row = {
            name: value if value is None or isinstance(kinds[name], Scalar) else json.loads(value)
            for name, value in zip(kinds, question, strict=True)
        }
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await self._function(row)
            text = json.dumps(found, allow_nan=False).encode()
        except OnceflowError:
            raise
        except OSError as error:  # also every time-out
            is_late = isinstance(error, TimeoutError)
            raise OutcomeUnknownError(
                "the coroutine did not answer",
                subject=self._name,
                expected=f"an answer within {self._timeout_s:g} s" if is_late else "",
                found="" if is_late else error.strerror or type(error).__name__,
                then="it is asked again",
            ) from error
        except ValueError as error:
            raise ValueError(f"{self._name}: {error}") from error
        except Exception as error:  # a user's code may raise anything, perhaps with a secret in it
            raise ValueError(f"{self._name} raised {type(error).__name__}") from error
        if len(text) > self._max_bytes:
            raise ValueError(f"expected at most {self._max_bytes} bytes, found {len(text)}")
        return text

    async def probe(self) -> None:
        """Nothing: only a question tells."""

    async def close(self) -> None:
        """Nothing is held here."""

    def _imported(self) -> Callable[[Mapping[str, Any]], Awaitable[Any]]:
        found: Callable[[Mapping[str, Any]], Awaitable[Any]]
        found = import_named(self._name, self._folder, WHERE)
        if not inspect.iscoroutinefunction(found):
            error: ConfigError = code_error(
                f"{self._name} is not declared by `async def`", "", "", WHERE
            )
            raise error
        return found
