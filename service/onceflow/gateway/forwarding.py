"""Sends a post on to the instance that owns its key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp.web_request import BaseRequest

from onceflow.gateway.posts import Answer, problem
from onceflow.gateway.trust import authorities

HOP = "Onceflow-Forwarded"
"""Header of a post that was sent on: it is not sent on again."""
CONNECT_TIMEOUT_S = 2.0
LOOK_S = 0.25
"""How often it is looked whether the other is still the owner."""
_HANDED_ON = ("Authorization", "Content-Type", "Idempotency-Key")
UNANSWERED = problem(
    503, "the instance that owns this key does not answer; send it again with the same key", 1
)


@dataclass
class Forwarder:
    """A client of the other instances.

    Args:
        authorities_file: of their certificates; None for the machine's.
        timeout_s: after which an instance has not answered.
    """

    authorities_file: Path | None
    timeout_s: float
    _session: aiohttp.ClientSession | None = None

    async def forward(
        self, address: str, request: BaseRequest, body: bytes, is_owner: Callable[[], bool]
    ) -> Answer | None:
        """Send a post on, with the rights of its sender, and hand the answer back.

        Args:
            address: of the owner.
            request: with the headers of the post.
            body: of the post.
            is_owner: whether that is still the owner; a frozen one would not answer.

        Returns:
            None if it is no longer the owner. It may have written the post.
        """
        asked = asyncio.create_task(self._ask(address, request, body))
        while not asked.done() and is_owner():
            await asyncio.wait({asked}, timeout=LOOK_S)
        if asked.done():
            return asked.result()
        asked.cancel()
        return None

    async def _ask(self, address: str, request: BaseRequest, body: bytes) -> Answer:
        headers = {name: request.headers[name] for name in _HANDED_ON if name in request.headers}
        try:
            async with self._open().post(
                address + request.path, data=body, headers={**headers, HOP: "1"}
            ) as response:
                fields = json.loads(await response.read())
                after_s = response.headers.get("Retry-After", "")
                return Answer(response.status, fields, int(after_s) if after_s.isdigit() else None)
        except (aiohttp.ClientError, TimeoutError, ValueError, OSError):
            return UNANSWERED

    async def close(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=authorities(self.authorities_file), limit=256),
                timeout=aiohttp.ClientTimeout(self.timeout_s, sock_connect=CONNECT_TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session
