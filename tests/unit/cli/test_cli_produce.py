"""From lines to records, without a broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onceflow.cli.operate import produce
from onceflow.cli.operate.produce import chunks, keyed, numbered
from onceflow.clock import SystemClock
from onceflow.errors import RecordError
from tests.support.clock import ManualClock

WAIT_S = 30


def test_lines_keep_their_numbers_and_lose_their_ends() -> None:
    assert list(numbered([b"a", b"", b"b\r", b"c"])) == [(1, b"a"), (3, b"b"), (4, b"c")]
    assert list(numbered([b"d"], before=4)) == [(5, b"d")]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """One end to read from, and one to write to and then to close."""
    reads, writes = os.pipe()
    yield reads, writes
    os.close(reads)


def test_a_line_from_a_pipe_waits_for_others_only_so_long(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "PATIENCE_S", 0.05)
    reads, writes = pipe
    found = chunks(reads, SystemClock())
    os.write(writes, b"a\nb\nunfin")
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(next, found).result(WAIT_S) == [b"a", b"b"]
        os.write(writes, b"ished\n")
        assert thread.submit(next, found).result(WAIT_S) == [b"unfinished"]
        os.write(writes, b"last")
        os.close(writes)
        assert thread.submit(list, found).result(WAIT_S) == [[b"last"]]


def test_nor_does_it_wait_while_others_keep_coming(pipe: tuple[int, int]) -> None:
    reads, writes = pipe
    clock = ManualClock()
    found = chunks(reads, clock)
    monotonic_s = clock.monotonic_s

    def fed_s() -> float:
        # Whenever the time is looked at, there is more to read, and some of it has passed.
        if monotonic_s() < 10 * produce.PATIENCE_S:
            os.write(writes, b"a\n")
        clock.sleep(produce.PATIENCE_S / 4)
        return monotonic_s()

    os.write(writes, b"a\n")
    clock.monotonic_s = fed_s  # type: ignore[method-assign]
    assert 1 <= len(next(found)) <= 10
    os.close(writes)


def test_lines_of_a_file_come_in_lots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "CHUNK_LINES", 3)
    lines = [str(number).encode() * 10 for number in range(10)]
    for end in (b"", b"\n"):
        for block_bytes in (1, 7, 11, 1000):
            monkeypatch.setattr(produce, "BLOCK_BYTES", block_bytes)
            (tmp_path / "lines").write_bytes(b"\n".join(lines) + end)
            with (tmp_path / "lines").open("rb") as file:
                found = list(chunks(file.fileno(), ManualClock()))
            assert [line for lot in found for line in lot] == lines
            assert [len(lot) for lot in found] == [3, 3, 3, 1]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (b'{"user": "ann"}', b"ann"),
        (b'{"user": 5}', b"5"),
        (b'{"user": null}', b"null"),
        (b'{"user": {"id": 1}}', b'{"id": 1}'),
    ],
)
def test_a_key_is_text_as_it_stands_and_json_otherwise(line: bytes, key: bytes) -> None:
    assert keyed(1, line, "user") == (key, line)
    assert keyed(1, line, None) == (None, line)


@pytest.mark.parametrize("line", [b"{}", b"[1]", b"5", b"not json", b"\xff"])
def test_a_line_without_the_key_is_named(line: bytes) -> None:
    with pytest.raises(RecordError, match="a line has no key: line 7"):
        keyed(7, line, "user")
