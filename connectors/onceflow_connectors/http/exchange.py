"""Requests and answers: the session and one exchange, as all parts that use HTTP make them."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import aiohttp
from yarl import URL

from onceflow_connectors.http.credentials import tls_context
from onceflow_connectors.http.endpoint import Endpoint
from onceflow_connectors.http.outcomes import Answer

CONNECT_TIMEOUT_S = 10.0
IDLE_S = 4.0
"""After this long, a connection is not used again: common servers close it after 5 seconds, and a
request on a connection that is being closed has no answer."""
MAX_ANSWER_BYTES = 64 * 1024
"""Read of an answer, where its content does not count."""
BLOCK_BYTES = 16 * 1024
MAX_BYTES_AT_ONCE = 1024 * 1024
TURNS = 5
"""Of the loop, after which it has noticed a connection that was closed, also with TLS."""


def opened_session(block: Endpoint, folder: Path, in_flight: int) -> aiohttp.ClientSession:
    """Open a session: no cookies, no compression, no proxies of the environment.

    Raises:
        ConfigError: a certificate cannot be read.
    """
    timeout_s = block.timeout_ms / 1000
    connector = aiohttp.TCPConnector(
        limit=in_flight, ssl=tls_context(block, folder), keepalive_timeout=IDLE_S
    )
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(timeout_s, sock_connect=min(timeout_s, CONNECT_TIMEOUT_S)),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=["Accept-Encoding"],
        headers={"User-Agent": "onceflow", **block.headers},
    )


async def exchanged(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    most_bytes: int = MAX_ANSWER_BYTES,
) -> Answer:
    """Make one request, follow no redirect, and read its answer to the bound.

    A longer answer has more bytes than `most_bytes`, and its connection is closed.

    Raises:
        aiohttp.ClientError, TimeoutError, OSError: there is no whole answer.
    """
    # The client warns of larger bodies that are bytes, because they are written in one go.
    data = BytesIO(body) if body is not None and len(body) > MAX_BYTES_AT_ONCE else body
    async with session.request(
        method, URL(url, encoded=True), data=data, headers=headers, allow_redirects=False
    ) as response:
        found = b""
        while len(found) <= most_bytes and (more := await response.content.read(BLOCK_BYTES)):
            found += more
        if len(found) > most_bytes:
            response.close()
        return Answer(response.status, response.headers, found)
