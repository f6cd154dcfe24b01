"""One client's connection to one broker, and what the rules do to it."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from tests.chaos.faults import ArmedRule, Held
from tests.chaos.link import EndedError, Link
from tests.chaos.messages import (
    ERROR_CODES,
    TELL_ADDRESSES,
    FrameError,
    Request,
    advertise,
    answered_id,
    limit_versions,
    nodes,
    read_answer,
    read_request,
    with_correlation_id,
)
from tests.chaos.refusals import refuse, refuse_instead
from tests.chaos.rules import Rule, Side

if TYPE_CHECKING:
    from tests.chaos.proxy import Proxy

MAX_IN_FLIGHT = 256
"""Requests of one connection that wait for an answer; librdkafka's own bound is far higher, and it
waits like any client whose broker does not read."""
_FIRST_COPY_ID = -(2**31)
"""Correlation ids of copies count from here; clients count from 0."""
_NOTHING = b""
"""Stands among frames for a look at what is pending."""


class UnreadableError(Exception):
    """A broker's answer that the proxy must read, and cannot."""


@dataclass(frozen=True)
class _Pending:
    """A request whose answer has not come.

    Args:
        request: as the client sent it.
        correlation_id: under which the broker knows it.
        answer: if it needs none of the broker.
        is_copy: whether the client knows nothing of it.
    """

    request: Request
    correlation_id: int
    answer: bytes | None = None
    is_copy: bool = False


class Session:
    """One connection of a client, joined to one of a broker.

    Brokers answer in the order in which requests arrive, and clients count on it. An answer that
    the proxy gives itself waits for its turn, too.
    """

    def __init__(self, proxy: Proxy, node_id: int, client: Link, broker: Link) -> None:
        self.node_id = node_id
        self.client_id: str | None = None
        self._proxy = proxy
        self._faults = proxy.faults
        self._client = client
        self._broker = broker
        self._pending: deque[_Pending] = deque()
        self._room = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._arrived: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=1)
        self._copy_ids = count(_FIRST_COPY_ID)

    async def run(self) -> None:
        """Carry messages until one side ends or a rule does; closes both connections."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._take_requests())
                tasks.create_task(self._take_responses())
                tasks.create_task(self._answer())
        except* (OSError, FrameError):
            pass  # one side is gone, or does not speak Kafka
        finally:
            await asyncio.gather(self._client.close(), self._broker.close())

    async def _take_requests(self) -> None:
        while True:
            request = read_request(await self._client.read())
            self.client_id = request.header.client_id or ""
            await self._pass_cuts()
            await self._on_request(request)

    async def _on_request(self, request: Request) -> None:
        armed = self._choose("request", request)
        action = armed.rule.action if armed else "pass"
        if armed is None or action == "pass":
            await self._forward(request)
        elif action in ("hold", "delay"):
            await self._forward_when_released(self._hold(armed, "request", request))
        elif action == "duplicate":
            await self._forward(request)
            await self._forward_copy(request)
        elif action == "error":
            code = ERROR_CODES[armed.rule.error or ""]
            refusal = refuse(request, code, self._proxy.cluster)
            await self._expect(_Pending(request, request.header.correlation_id, refusal))
            if self._arrived.empty():  # otherwise its turn comes after what is there
                self._arrived.put_nowait(_NOTHING)
        elif action in ("slow", "split"):
            await self._forward(request, armed.rule)
        elif action == "close":
            raise EndedError
        # What is left is to drop it.

    async def _forward(
        self, request: Request, how: Rule | None = None, held: Held | None = None
    ) -> None:
        await self._pass_cuts()
        if request.is_answered:
            await self._room.acquire()
        if self._broker.is_over:
            raise EndedError
        if held is not None:
            held.is_sent = True
        if request.is_answered:
            self._pending.append(_Pending(request, request.header.correlation_id))
        await self._broker.write(request.frame, how)

    async def _forward_copy(self, request: Request) -> None:
        copy_id = next(self._copy_ids)
        if request.is_answered:
            await self._room.acquire()
        if request.is_answered:
            self._pending.append(_Pending(request, copy_id, is_copy=True))
        await self._broker.write(with_correlation_id(request.frame, copy_id))

    async def _expect(self, pending: _Pending) -> None:
        await self._room.acquire()
        self._pending.append(pending)

    async def _forward_when_released(self, held: Held) -> None:
        try:
            await held.released.wait()
            if not self._client.is_over:
                await self._forward(held.request, held=held)
        finally:
            held.left.set()

    async def _take_responses(self) -> None:
        try:
            while True:
                await self._arrived.put(await self._broker.read())
        except OSError:
            # The end comes after the answers before it, like everything on a connection.
            await self._arrived.put(None)

    async def _answer(self) -> None:
        while True:
            frame = await self._arrived.get()
            if frame is None:
                raise EndedError
            if frame:
                await self._on_response(frame)
            while self._pending and (ready := self._pending[0].answer) is not None:
                self._next_pending()
                await self._reply(ready)

    async def _on_response(self, frame: bytes) -> None:
        if not self._pending or self._pending[0].correlation_id != answered_id(frame):
            raise FrameError("an answer that no request waits for")
        pending = self._next_pending()
        if not pending.is_copy:
            request = pending.request
            rewritten = await self._rewritten(request, frame)
            await self._act_on_response(request, rewritten)

    def _next_pending(self) -> _Pending:
        self._room.release()
        return self._pending.popleft()

    async def _act_on_response(self, request: Request, frame: bytes) -> None:
        armed = self._choose("response", request)
        action = armed.rule.action if armed else "pass"
        if armed is None or action == "pass":
            await self._reply(frame)
        elif action in ("hold", "delay"):
            await self._reply_when_released(self._hold(armed, "response", request), frame)
        elif action == "duplicate":
            await self._reply(frame)
            await self._reply(frame)
        elif action == "error":
            code = ERROR_CODES[armed.rule.error or ""]
            await self._reply(refuse_instead(request, frame, code))
        elif action in ("slow", "split"):
            await self._reply(frame, armed.rule)
        elif action == "close":
            raise EndedError
        # What is left is to drop it.

    async def _reply(self, frame: bytes, how: Rule | None = None) -> None:
        await self._pass_cuts()
        await self._client.write(frame, how)

    async def _reply_when_released(self, held: Held, frame: bytes) -> None:
        try:
            await held.released.wait()
            await self._reply(frame)
            held.is_sent = True
        finally:
            held.left.set()

    async def _rewritten(self, request: Request, frame: bytes) -> bytes:
        """The answer as if the proxy were the cluster."""
        is_version_list = request.api == "ApiVersions"
        if request.body is None or not (is_version_list or request.api in TELL_ADDRESSES):
            return frame
        try:
            answer = read_answer(request, frame)
        except FrameError as error:
            # To let it pass would let the client pass the proxy by.
            raise UnreadableError(f"{request.body!r}: {error}") from error
        if is_version_list:
            limit_versions(answer)
        elif found := nodes(answer):
            advertise(answer, await self._proxy.advertised(found))
        else:
            return frame
        return bytes(answer.encode(header=True))

    async def _pass_cuts(self) -> None:
        """Go on only if no cut is in the way."""
        while cut := self._faults.cut_of(self.node_id, self.client_id):
            if not cut.is_silent:
                raise EndedError
            await self._faults.healed()

    def _choose(self, on: Side, request: Request) -> ArmedRule | None:
        return self._faults.choose(on, request, self.node_id)

    def _hold(self, armed: ArmedRule, on: Side, request: Request) -> Held:
        held = Held(on, request, self.node_id)
        self._proxy.keep(armed, held)
        return held
