"""Sends records by HTTP, several requests at once, and waits for the answers to all of them.

A loop of asyncio runs as long as a call does, in the thread of the caller. Connections stay open
between calls. After a request without an answer, all of them are closed, and certificates are read
again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp

from onceflow.clock import Clock, Deadline
from onceflow.contracts.record import Record
from onceflow.contracts.target import Answers
from onceflow.contracts.target_block import TargetSpec
from onceflow.crashpoints import CrashPoint, reach
from onceflow.errors import ConfigError, OnceflowError, OutcomeUnknownError, RetriableError
from onceflow_connectors.http.block import HttpBlock
from onceflow_connectors.http.credentials import secret_headers
from onceflow_connectors.http.exchange import TURNS, exchanged, opened_session
from onceflow_connectors.http.outcomes import Answer, Outcome, failure_of, outcome_of
from onceflow_connectors.http.requests import (
    Place,
    Request,
    body_of,
    chain,
    grouped,
    headers_of,
    unsendable,
)
from onceflow_connectors.http.statuses import is_busy, is_well, retry_after_s, status_text

MAX_FAILURES = 10
"""Failed requests of one call after which it sends no more, whatever they say."""

T = TypeVar("T")


class HttpSender:
    """Implements `contracts.target.Sender`.

    Args:
        clock: for how long the receiver asks to be left alone.
    """

    def __init__(self, block: HttpBlock, spec: TargetSpec, clock: Clock) -> None:
        self._block = block
        self._spec = spec
        self._clock = clock
        self._runner: asyncio.Runner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._busy_until: Deadline | None = None
        self._cuts: Sequence[tuple[Place, ...]] = ()

    def check(self) -> None:
        self.close()
        secret_headers(self._block, self._spec.folder)
        self.probe()

    def probe(self) -> None:
        error: OnceflowError | None = self._asked_to_wait() or self._run(self._probed())
        if error is not None:
            raise error

    def send(self, records: Sequence[Record], attempt: int) -> Answers:
        if error := self._asked_to_wait():
            return Answers(frozenset(), {}, error)
        call = _Call(records, attempt, secret_headers(self._block, self._spec.folder))
        self._run(self._deliver(call))
        self._cuts = [request.places for request in call.open]
        return call.answers()

    def close(self) -> None:
        runner, self._runner = self._runner, None
        session, self._session = self._session, None
        if runner is not None:
            with runner:
                if session is not None:
                    runner.run(session.close())

    def _asked_to_wait(self) -> RetriableError | None:
        if self._busy_until is None or self._busy_until.is_over:
            return None
        return RetriableError(
            "the receiver asks to be left alone",
            subject=self._block.describe(),
            found=f"`Retry-After`, {self._busy_until.remaining_s():.0f} s from now",
        )

    def _run(self, doing: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            return self._runner.run(doing)
        except BaseException:
            self.close()
            raise

    async def _opened(self) -> aiohttp.ClientSession:
        if self._session is not None:
            # Lets the loop notice connections that were closed since the last call. TLS needs
            # several turns for it.
            for _ in range(TURNS):
                await asyncio.sleep(0)
            return self._session
        self._session = opened_session(self._block, self._spec.folder, self._block.in_flight)
        return self._session

    async def _reset(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _probed(self) -> OnceflowError | None:
        block = self._block
        session = await self._opened()
        method, url, headers = "GET", block.health_url, {}
        if url is None:
            method, url = "OPTIONS", block.url
            headers = dict(secret_headers(block, self._spec.folder))
        try:
            answer = await exchanged(session, method, url, headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            await self._reset()
            return failure_of(error, block.describe(), block.timeout_ms)
        self._note_wait(answer)
        if is_well(answer.status):
            return None
        what, found = "the receiver is not well", status_text(answer.status)
        return RetriableError(what, subject=block.describe(), found=found)

    async def _deliver(self, call: _Call) -> None:
        """Send what can be sent. Fills `call`."""
        block = self._block
        session = await self._opened()
        reasons = {n: unsendable(block, record) for n, record in enumerate(call.records)}
        call.refused.update({n: reason for n, reason in reasons.items() if reason})
        among = [n for n, reason in reasons.items() if not reason]
        # The first attempt is cut as the one before a crash was.
        cuts = self._cuts if call.attempt > 1 else ()
        requests = grouped(call.records, among, block.records_per_request, cuts)
        call.open.update(requests)
        ready = deque(chain(requests, block.order))
        flying = 0

        async def fly(request: Request) -> None:
            nonlocal flying
            if await self._settle(session, request, call):
                for follower in request.followers:
                    follower.waits_for -= 1
                    if not follower.waits_for:
                        ready.append(follower)
            flying -= 1
            start()

        def start() -> None:
            nonlocal flying
            while ready and flying < block.in_flight and not call.is_stopped:
                flying += 1
                tasks.create_task(fly(ready.popleft()))

        async with asyncio.TaskGroup() as tasks:
            start()
        if call.is_broken:
            await self._reset()

    async def _settle(self, session: aiohttp.ClientSession, request: Request, call: _Call) -> bool:
        """Send one request. Returns whether there is a decision about each of its records."""
        outcome = await self._outcome(session, request, call)
        if outcome.error is not None:
            call.fail(outcome.error, stops=outcome.stops)
            return False
        if outcome.refusal and len(request.indices) > 1:
            # One record may be the reason, or the size of them all.
            one, other = request.halves()
            call.open.discard(request)
            call.open.update((one, other))
            is_settled = await self._settle(session, one, call) and not call.is_stopped
            return is_settled and await self._settle(session, other, call)
        if outcome.refusal:
            call.refused[request.indices[0]] = outcome.refusal
        else:
            call.acknowledged.update(request.indices)
            reach(CrashPoint.MID_PRODUCE)
        call.open.discard(request)
        return True

    async def _outcome(
        self, session: aiohttp.ClientSession, request: Request, call: _Call
    ) -> Outcome:
        block = self._block
        try:
            own = headers_of(block, self._spec.delivery, request, call.attempt)
            headers = {"Content-Type": block.type_of_content, **call.secrets, **own}
            body = body_of(block, request)
            answer = await exchanged(session, block.method, block.url, headers, body)
        except OnceflowError as error:
            return Outcome(error=error, stops=True)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            call.is_broken = True
            failure = failure_of(error, block.describe(), block.timeout_ms)
            return Outcome(error=failure, stops=True)
        self._note_wait(answer)
        outcome = outcome_of(answer, block, call.secrets.values())
        if answer.status in {401, 403} and isinstance(outcome.error, ConfigError):
            return self._with_newer_secrets(outcome, call)
        return outcome

    def _with_newer_secrets(self, outcome: Outcome, call: _Call) -> Outcome:
        """Try again if `headers_file` was written since the call began."""
        if secret_headers(self._block, self._spec.folder) == call.secrets:
            return outcome
        what = "the credentials have changed while they were used"
        error = RetriableError(what, subject=self._block.describe())
        return Outcome(error=error, stops=True)

    def _note_wait(self, answer: Answer) -> None:
        if is_busy(answer.status) and (header := answer.headers.get("Retry-After")):
            self._busy_until = self._clock.within(retry_after_s(header, self._clock.unix_ms()))


@dataclass
class _Call:
    """One call of `send`, and what is known about its records.

    Args:
        secrets: headers of `headers_file`.

    Attributes:
        error: the first of those that no retry can change.
        is_stopped: whether no further request is sent.
        is_broken: whether a request had no answer.
        open: requests without a decision. They are made again as they are.
    """

    records: Sequence[Record]
    attempt: int
    secrets: Mapping[str, str]
    acknowledged: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)
    failure: RetriableError | OutcomeUnknownError | None = None
    error: OnceflowError | None = None
    failures: int = 0
    is_stopped: bool = False
    is_broken: bool = False
    open: set[Request] = field(default_factory=set)

    def fail(self, error: OnceflowError, *, stops: bool) -> None:
        """Note that a request is not settled."""
        self.failures += 1
        self.is_stopped = self.is_stopped or stops or self.failures >= MAX_FAILURES
        if not isinstance(error, RetriableError | OutcomeUnknownError):
            self.error = self.error or error
        elif self.failure is None:
            self.failure = error

    def answers(self) -> Answers:
        """Say what became of the records.

        An error that no retry can change waits for the next call, if there is something to
        acknowledge first.
        """
        is_news = self.acknowledged or self.refused
        if self.error is not None and not is_news:
            raise self.error
        failure = self.failure
        if self.error is not None:
            failure = RetriableError(
                self.error.what, subject=self.error.subject, found=self.error.found
            )
        return Answers(frozenset(self.acknowledged), self.refused, failure)
