"""Asks a service by HTTP: one request for each question. Connections stay open between calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import aiohttp

from onceflow.clock import Clock, Deadline
from onceflow.columns import Columns
from onceflow.contracts.record import Record
from onceflow.contracts.target import Values
from onceflow.errors import OutcomeUnknownError, RetriableError
from onceflow_connectors.http.ask_block import AskBlock
from onceflow_connectors.http.credentials import secret_headers
from onceflow_connectors.http.exchange import TURNS, exchanged, opened_session
from onceflow_connectors.http.outcomes import ASKING, Answer, answer_text, failure_of, misconfigured
from onceflow_connectors.http.statuses import (
    SUCCESS,
    Meaning,
    is_busy,
    is_well,
    meaning_of,
    retry_after_s,
    status_text,
)
from onceflow_connectors.http.template import filled, fixed_part


class Question(NamedTuple):
    """A request. Questions that are equal may have one answer."""

    url: str
    body: bytes | None


class HttpService:
    """Implements `contracts.service.Service`.

    Args:
        concurrency: connections at the same time.
        clock: for how long the service asks to be left alone.
    """

    def __init__(
        self, block: AskBlock, columns: Columns, folder: Path, concurrency: int, clock: Clock
    ) -> None:
        self._block = block
        self._columns = columns
        self._folder = folder
        self._concurrency = concurrency
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._busy_until: Deadline | None = None
        self._in_use = 0
        self._is_broken = False

    def question(self, record: Record, row: Values) -> Question:
        values = dict(zip(self._columns.names, row, strict=True))
        url = filled(self._block.url, values)
        return Question(url, record.value if self._block.method == "POST" else None)

    async def ask(self, question: Question) -> bytes:
        secrets = secret_headers(self._block, self._folder)
        headers = {"Accept": "application/json", **secrets}
        if question.body is not None:
            headers["Content-Type"] = "application/json"
        answer = await self._exchanged(self._block.method, question.url, headers, question.body)
        if answer.status in {401, 403} and secret_headers(self._block, self._folder) != secrets:
            what = "the credentials have changed while they were used"
            raise OutcomeUnknownError(what, subject=self._block.describe())
        return self._judged(answer, secrets.values())

    async def probe(self) -> None:
        block = self._block
        method, url, headers = "GET", block.health_url, {}
        if url is None:
            method, url = "OPTIONS", fixed_part(block.url)
            headers = dict(secret_headers(block, self._folder))
        answer = await self._exchanged(method, url, headers, None)
        if not is_well(answer.status):
            what, found = "the service is not well", status_text(answer.status)
            raise RetriableError(what, subject=block.describe(), found=found)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _exchanged(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None
    ) -> Answer:
        """Make one request.

        Raises:
            RetriableError, OutcomeUnknownError, ConfigError: there is no whole answer.
        """
        block = self._block
        if self._busy_until is not None and not self._busy_until.is_over:
            left_s = self._busy_until.remaining_s()
            raise RetriableError(
                "the service asks to be left alone",
                subject=block.describe(),
                found=f"`Retry-After`, {left_s:.0f} s from now",
            )
        session = await self._opened()
        self._in_use += 1
        try:
            answer = await exchanged(session, method, url, headers, body, block.max_answer_bytes)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._is_broken = True
            raise failure_of(error, block.describe(), block.timeout_ms) from error
        finally:
            self._in_use -= 1
            if self._is_broken and not self._in_use:
                # Others are opened with certificates as they are then.
                self._is_broken = False
                await self.close()
        if is_busy(answer.status) and (header := answer.headers.get("Retry-After")):
            self._busy_until = self._clock.within(retry_after_s(header, self._clock.unix_ms()))
        return answer

    async def _opened(self) -> aiohttp.ClientSession:
        if self._session is not None and not self._in_use:
            # Lets the loop notice connections that were closed since the last call.
            for _ in range(TURNS):
                await asyncio.sleep(0)
        if self._session is None:
            self._session = opened_session(self._block, self._folder, self._concurrency)
        return self._session

    def _judged(self, answer: Answer, secrets: Iterable[str]) -> bytes:
        block = self._block
        found, subject = answer_text(answer, secrets), block.describe()
        match meaning_of(answer.status, SUCCESS, block.final):
            case Meaning.ACKNOWLEDGED:
                return self._content(answer)
            case Meaning.REFUSED:
                raise ValueError(found)
            case Meaning.RETRY if is_busy(answer.status):
                what = "the service takes no questions now"
                raise RetriableError(what, subject=subject, found=found)
            case Meaning.RETRY:
                what = "the service does not answer a question now"
                raise OutcomeUnknownError(what, subject=subject, found=found)
            case Meaning.MISCONFIGURED:
                raise misconfigured(answer, subject, found, ASKING)

    def _content(self, answer: Answer) -> bytes:
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not (kind.isascii() and kind.endswith("+json")):
            shown = kind[:60] if kind.isprintable() and kind else "none"
            raise ValueError(f"expected an answer of type application/json, found {shown}")
        most = self._block.max_answer_bytes
        if len(answer.body) > most:
            raise ValueError(f"expected an answer of at most {most} bytes, found a longer one")
        return answer.body
