"""Ports that listen on behalf of Spark, and their answers to a caller without the secret."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress

import psutil

from onceflow.pipeline.analysis.rehearsal import rehearsal_session

_RPC_REQUEST = 3
"""Of Spark's wire protocol: what every call begins with."""
_TIMEOUT_S = 20.0
_SENSELESS = b"x" * 64


def listening() -> list[tuple[str, int]]:
    """Addresses and ports of this process and all that it has started."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    found = []
    for process in family:
        with suppress(psutil.NoSuchProcess):  # a worker may have ended
            found += process.net_connections("inet")
    return sorted(
        (each.laddr.ip, each.laddr.port) for each in found if each.status == psutil.CONN_LISTEN
    )


def answer_to_a_stranger(port: int) -> bytes:
    """The answer to a call without a secret; empty if the connection is closed."""
    body = struct.pack(">BqI", _RPC_REQUEST, 1, len(_SENSELESS)) + _SENSELESS
    frame = struct.pack(">q", len(body) + 8) + body
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT_S) as connection:
        connection.sendall(frame)
        return b"".join(_received(connection))


def _received(connection: socket.socket) -> Iterator[bytes]:
    for _ in range(64):
        part = connection.recv(65536)
        yield part
        if not part or b"Exception" in part:
            return


def main() -> None:
    """Start the rehearsal's Spark, and tell what listens and what it answers."""
    spark = rehearsal_session()
    port = int(spark.sparkContext.getConf().get("spark.driver.port") or 0)
    sys.stdout.write(f"{ {ip for ip, _ in listening()} } {answer_to_a_stranger(port)!r}\n")
    spark.stop()


if __name__ == "__main__":
    main()
