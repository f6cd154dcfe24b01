"""One client's connection to one broker, and what the rules do to it."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count
from typing import TYPE_CHECKING

from tests.chaos.link import EndedError, Link
from tests.chaos.messages import (
    TELL_ADDRESSES,
    FrameError,
    Request,
    advertise,
    answered_id,
    limit_versions,
    nodes,
    read_answer,
    read_request,
    refused,
    with_correlation_id,
)
from tests.chaos.rules import Held, Rule, RunningRule

if TYPE_CHECKING:
    from tests.chaos.proxy import Proxy

_FIRST_COPY_ID = -(2**31)
"""Correlation ids of copies count from here; clients count from 0."""
_PASS = Rule(on="response", action="pass")


class UnreadableError(Exception):
    """A broker's answer that the proxy must read, and cannot."""


class Session:
    """One connection of a client, joined to one of a broker.

    Brokers answer in the order in which requests arrive, and clients count on it.
    """

    def __init__(self, proxy: Proxy, node_id: int, client: Link, broker: Link) -> None:
        self._node_id = node_id
        self._proxy = proxy
        self._client = client
        self._broker = broker
        self._pending: deque[tuple[int, Request | None]] = deque()
        """Correlation ids without an answer yet; no request for a copy that the client ignores."""
        self._copy_ids = count(_FIRST_COPY_ID)

    async def run(self) -> None:
        """Carry messages until one side ends or a rule does; closes both connections."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._take_requests())
                tasks.create_task(self._take_answers())
        except* (OSError, FrameError):
            pass  # one side is gone, or does not speak Kafka
        finally:
            await asyncio.gather(self._client.close(), self._broker.close())

    async def _take_requests(self) -> None:
        while True:
            request = read_request(await self._client.read())
            await self._proxy.pass_cut(self._node_id)
            running = self._proxy.choose("request", request, self._node_id)
            if running is None:
                await self._forward(request)
            elif running.rule.action == "hold":
                await self._forward_when_released(running, request)
            elif running.rule.action != "drop":
                await self._forward(request, running.rule)
                if running.rule.action == "duplicate":
                    await self._forward_copy(request)

    async def _forward(self, request: Request, how: Rule | None = None) -> None:
        await self._proxy.pass_cut(self._node_id)
        if self._broker.is_over:
            raise EndedError
        if request.is_answered:
            self._pending.append((request.header.correlation_id, request))
        await self._broker.write(request.frame, how)

    async def _forward_copy(self, request: Request) -> None:
        copy_id = next(self._copy_ids)
        if request.is_answered:
            self._pending.append((copy_id, None))
        await self._broker.write(with_correlation_id(request.frame, copy_id))

    async def _forward_when_released(self, running: RunningRule, request: Request) -> None:
        held = Held(request, self._node_id)
        running.held.append(held)
        try:
            await held.released.wait()
            if not (self._client.is_over or self._broker.is_over):
                held.is_sent = True
                await self._forward(request)
        finally:
            held.left.set()

    async def _take_answers(self) -> None:
        while True:
            frame = await self._broker.read()
            if not self._pending or self._pending[0][0] != answered_id(frame):
                raise FrameError("an answer that no request waits for")
            _, request = self._pending.popleft()
            if request is not None:
                await self._answer(request, await self._rewritten(request, frame))

    async def _answer(self, request: Request, frame: bytes) -> None:
        running = self._proxy.choose("response", request, self._node_id)
        rule = running.rule if running else _PASS
        if rule.action == "drop":
            return
        if rule.action == "close":
            raise EndedError
        if rule.delay_ms is not None:
            await asyncio.sleep(rule.delay_ms / 1000)
        if rule.error is not None:
            frame = refused(request, frame, rule.error)
        await self._proxy.pass_cut(self._node_id)
        await self._client.write(frame, rule)

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
