"""One connection, as frames."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

from tests.chaos.messages import FrameError
from tests.chaos.rules import Rule

SIZE_BYTES = 4
MAX_FRAME_BYTES = 128 * 1024 * 1024
"""Brokers take requests up to 100 MiB by default; answers to a fetch are smaller."""
BUFFER_BYTES = 1024 * 1024
"""What is read ahead of a connection."""
CONNECT_TIMEOUT_S = 10.0
"""For a broker to accept; those that run do so at once."""
CLOSE_TIMEOUT_S = 1.0
"""For the other side to take what is still to be sent to it."""
SLOW_STEPS_PER_S = 20
"""Pieces a second into which data is cut."""


class EndedError(ConnectionError):
    """The other side has closed the connection, or we have."""


class Link:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, host: str, port: int) -> Self:
        """Connect.

        Raises:
            OSError: no server accepts there, or not in time.
        """
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return cls(*await asyncio.open_connection(host, port, limit=BUFFER_BYTES))

    @property
    def is_over(self) -> bool:
        """Whether the other end is known to be gone."""
        return self._reader.at_eof() or self._writer.is_closing()

    async def read(self) -> bytes:
        """The next frame, without its size.

        Raises:
            EndedError: there is none.
            OSError: the connection broke.
            FrameError: no frame has such a size.
        """
        try:
            size = int.from_bytes(await self._reader.readexactly(SIZE_BYTES), signed=True)
            if not 0 <= size <= MAX_FRAME_BYTES:
                raise FrameError(f"a frame of {size} bytes")
            return await self._reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise EndedError from error

    async def write(self, frame: bytes, how: Rule | None = None) -> None:
        """Send a frame, and wait while the other side is slow to take it.

        Args:
            frame: without its size.
            how: `slow` and `split` are obeyed, all else is not looked at.

        Raises:
            OSError: the connection broke.
        """
        if self._writer.is_closing():
            raise EndedError
        data = len(frame).to_bytes(SIZE_BYTES) + frame
        step, pause_s = len(data), 0.0
        if how is not None and how.chunk_bytes is not None:
            step = how.chunk_bytes
        if how is not None and how.bytes_per_s is not None:
            step = max(1, how.bytes_per_s // SLOW_STEPS_PER_S)
            pause_s = step / how.bytes_per_s
        for start in range(0, len(data), step):
            if start:  # lets the piece before go out alone
                await asyncio.sleep(pause_s)
            self._writer.write(data[start : start + step])
            await self._writer.drain()

    async def close(self) -> None:
        """Close it; what was written goes out first, if the other side takes it. Safe to repeat."""
        self._writer.close()
        with suppress(OSError):  # of a connection that is broken already, or of time
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._writer.wait_closed()
        self._writer.transport.abort()
