"""A receiver of requests in a process of its own, which counts the lines that it was sent."""

from __future__ import annotations

import json
import multiprocessing
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from urllib.request import urlopen
from zlib import crc32

from aiohttp import web

HOST = "127.0.0.1"
MAX_BODY_BYTES = 64 * 1024 * 1024


@contextmanager
def receiver() -> Iterator[tuple[str, Callable[[], tuple[int, int]]]]:
    """Its URL, and a function that tells the count of lines and the sum over all of them."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,))
    process.start()
    try:
        url = f"http://{HOST}:{ours.recv()}/"

        def counted() -> tuple[int, int]:
            with urlopen(url) as answer:
                lines, total = json.load(answer)
            return lines, total

        yield url, counted
    finally:
        process.kill()
        process.join()


def _serve(told: Connection) -> None:
    lines, total = 0, 0

    async def take(request: web.Request) -> web.Response:
        nonlocal lines, total
        for line in (await request.read()).splitlines():
            lines += 1
            total += crc32(line)
        return web.Response()

    async def tell(_: web.Request) -> web.Response:
        return web.json_response([lines, total])

    async def tell_port(_: web.Application) -> None:
        told.send(listener.getsockname()[1])

    listener = socket.create_server((HOST, 0))
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/", take)
    app.router.add_get("/", tell)
    app.on_startup.append(tell_port)
    web.run_app(app, sock=listener, print=None)
