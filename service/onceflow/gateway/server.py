"""Answers HTTP: lets posts in, hands them on, and waits for their fate.

aiohttp's low-level server: a router, and what else an application has, would cost each post a third
more.
"""

from __future__ import annotations

import asyncio
import json
import logging
from asyncio import BaseProtocol, Future
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

from aiohttp import web
from aiohttp.web_exceptions import HTTPException
from aiohttp.web_request import BaseRequest

from onceflow.clock import Clock
from onceflow.contracts.sink import OutputRecord
from onceflow.gateway.callers import Callers, require_may_post
from onceflow.gateway.forwarding import HOP, Forwarder
from onceflow.gateway.model import Limits
from onceflow.gateway.posts import (
    Answer,
    Door,
    KeyOf,
    Refusal,
    content_type_of,
    key_of,
    problem,
)

PREFIX = "/v1/"
MAX_CONNECTIONS = 2_000
"""Open at once; further ones are closed at once."""
IDLE_S = 60.0
"""To send the head of a request, from the moment of connecting or of the answer before."""
BODY_TIMEOUT_S = 30.0
LINGERING_S = 2.0
"""How long the rest of a body that is refused is still taken, so that its sender reads why."""
LARGE_BYTES = 64 * 1024
"""Bodies from this size on are looked at in a thread, so that others need not wait for it."""
MOVES = 3
"""How often the owner of a key may change while a post is answered."""
LATE_S = 1.0
"""How much later than its deadline a post without an answer is given up."""
BUSY = problem(429, "too much is waiting for the brokers; send it again", 1)
NOBODY = problem(503, "no instance owns these keys at this moment; send it again", 1)
LATE = problem(503, "the brokers did not answer in time; it may be written", 1)
BUG = problem(500, "this is a bug in Onceflow; the post may be written")
ENDING = problem(503, "this instance is ending; send it again", 1)

_QUIET = logging.getLogger("onceflow.gateway.http")
_QUIET.disabled = True

Observed: TypeAlias = Callable[[int, int, float], None]
"""Takes the status of an answer, the records that it says are written, and the seconds it took."""


@dataclass(frozen=True)
class Post:
    """A post that was let in.

    Args:
        key: None if it has none.
    """

    topic: str
    records: Sequence[OutputRecord]
    size_bytes: int
    key: KeyOf | None


@dataclass
class Desk:
    """Answers requests, with the help of a gateway.

    Args:
        write: hands a post on, and a future for its answer; False if another instance owns its key,
            or there is no room.
        owner_of: the address of the owner of a key, if it is known and another's.
        waits_for: what is not ready, in a few words; empty if everything is.
        refused: tells posts of the last minutes that were not taken, by status.
        failed: gets an error that is a bug.
    """

    doors: Mapping[str, Door]
    callers: Callers
    limits: Limits
    write: Callable[[Post, Future[Answer]], bool]
    owner_of: Callable[[KeyOf], str | None]
    forwarder: Forwarder
    waits_for: Callable[[], str]
    clock: Clock
    observed: Observed
    refused: Callable[[], Mapping[int, int]]
    failed: Callable[[Exception], None]
    is_ending: bool = False
    in_flight_bytes: int = 0
    posts: int = 0
    """That are being answered."""

    async def handle(self, request: BaseRequest) -> web.StreamResponse:
        """Answer a request."""
        if request.path in {"/healthz", "/readyz"}:
            return _response(self._health(request.path))
        begun_s = self.clock.monotonic_s()
        self.posts += 1
        try:
            answer = await self._answer(request)
        except Refusal as refusal:
            answer = refusal.answer
        except Exception as error:  # noqa: BLE001  one post must not end the others
            self.failed(error)
            answer = BUG
        finally:
            self.posts -= 1
        took_s = self.clock.monotonic_s() - begun_s
        self.observed(answer.status, int(answer.fields.get("records", 0)), took_s)
        return _response(answer)

    async def _answer(self, request: BaseRequest) -> Answer:
        if self.is_ending:
            return ENDING
        topic = request.path.removeprefix(PREFIX)
        if not request.path.startswith(PREFIX):
            raise Refusal(404, f"there is nothing here but {PREFIX}TOPIC, /healthz and /readyz")
        caller = self.callers.caller_of(request.headers.get("Authorization", ""))
        door = self.doors.get(topic)
        if door is None:
            raise Refusal(404, "no such topic here")
        require_may_post(caller, topic, door.block)
        if request.method != "POST":
            raise Refusal(405, "only POST is possible here")
        content_type = content_type_of(request.headers.get("Content-Type", ""))
        if "Content-Encoding" in request.headers:
            raise Refusal(415, "Content-Encoding: expected none")
        keys = request.headers.getall("Idempotency-Key", [])
        if len(keys) > 1:
            raise Refusal(400, "Idempotency-Key: expected one")
        with self._room(request.content_length) as limit:
            body = await _body(request, limit)
            key = key_of(keys[0], caller.name, (topic, content_type, body)) if keys else None
            return await self._written(request, door, content_type, body, key)

    async def _written(
        self,
        request: BaseRequest,
        door: Door,
        content_type: str,
        body: bytes,
        key: KeyOf | None,
    ) -> Answer:
        if len(body) < LARGE_BYTES:
            records = door.records(content_type, body)
        else:
            records = await asyncio.to_thread(door.records, content_type, body)
        post = Post(door.topic, records, len(body), key)
        if key is None:
            return await self._tried(post) or BUSY
        for _ in range(MOVES):
            answer = await self._tried(post)
            if answer is not None and not answer.is_moved:
                return answer
            owner = self.owner_of(key)
            if owner is None or HOP in request.headers:
                return answer or NOBODY
            is_owner = partial(self._is_owner, key, owner)
            if (answer := await self.forwarder.forward(owner, request, body, is_owner)) is not None:
                return answer
        return NOBODY

    async def _tried(self, post: Post) -> Answer | None:
        """Write a post here; None if its key is another's, or there is no room."""
        waiter: Future[Answer] = asyncio.get_running_loop().create_future()
        return await self._fate(waiter) if self.write(post, waiter) else None

    def _is_owner(self, key: KeyOf, owner: str) -> bool:
        return self.owner_of(key) == owner

    async def _fate(self, waiter: Future[Answer]) -> Answer:
        within_s = self.limits.answer_within_ms / 1000 + LATE_S
        # Cheaper than `asyncio.timeout`, by a tenth of a post.
        alarm = asyncio.get_running_loop().call_later(within_s, _give_up, waiter)
        try:
            return await waiter
        finally:
            alarm.cancel()

    @contextmanager
    def _room(self, length: int | None) -> Iterator[int]:
        """Count the bytes of a body as in flight inside the block; gives the limit of its size.

        Raises:
            Refusal: 413, it is too large; 429, there is no room for it.
        """
        limit = self.limits.body_bytes
        if length is not None and length > limit:
            raise Refusal(413, f"a body of {length} bytes; at most {limit} are allowed")
        size = limit if length is None else length
        if self.in_flight_bytes + size > self.limits.in_flight_bytes:
            raise Refusal(429, "too many bytes wait for the brokers; send it again", 1)
        self.in_flight_bytes += size
        try:
            yield limit
        finally:
            self.in_flight_bytes -= size

    def _health(self, path: str) -> Answer:
        if path == "/healthz":
            return Answer(200, {"ok": True})
        waits_for = "its end" if self.is_ending else self.waits_for()
        fields = {"ok": not waits_for, "waits_for": waits_for, "refused": self.refused()}
        return Answer(503 if waits_for else 200, fields)


class Server(web.Server):
    """Holds no more connections than `MAX_CONNECTIONS`."""

    def __init__(self, handler: Callable[[BaseRequest], Awaitable[web.StreamResponse]]) -> None:
        super().__init__(
            handler,
            access_log=None,
            # It tells every malformed request, so any client could fill the log.
            logger=_QUIET,
            keepalive_timeout=IDLE_S,
            lingering_time=LINGERING_S,
            auto_decompress=False,
        )

    def __call__(self) -> Any:
        """Make the protocol of a new connection."""
        return super().__call__() if len(self.connections) < MAX_CONNECTIONS else _Refused()


class _Refused(BaseProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()


async def _body(request: BaseRequest, limit: int) -> bytes:
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # It is not part of the answer.
        request.writer.output_size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await _at_most(request, limit)
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {BODY_TIMEOUT_S:g} s") from None
    except (web.RequestPayloadError, HTTPException):
        raise Refusal(400, "the body is broken") from None
    except ConnectionError:
        raise Refusal(400, "the client is gone") from None


async def _at_most(request: BaseRequest, limit: int) -> bytes:
    parts, size = [], 0
    async for part in request.content.iter_any():
        size += len(part)
        if size > limit:
            raise Refusal(413, f"a body of more than {limit} bytes")
        parts.append(part)
    return b"".join(parts)


def _give_up(waiter: Future[Answer]) -> None:
    if not waiter.done():
        waiter.set_result(LATE)


def _response(answer: Answer) -> web.Response:
    body = json.dumps(answer.fields, separators=(",", ":")).encode()
    response = web.Response(body=body, status=answer.status)
    response.content_type = "application/problem+json" if answer.is_problem else "application/json"
    if answer.retry_after_s is not None:
        response.headers["Retry-After"] = str(answer.retry_after_s)
    if answer.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if answer.status == 405:
        response.headers["Allow"] = "POST"
    return response
