"""No jar is used unless it is the locked one; a full cache needs no network."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from onceflow.devkit.jars import DEFINITIONS, JarCache, JarSet, jar_set, lock_text
from onceflow.errors import ConfigError

CONTENT = {"one-1.0.jar": b"first", "two-2.0.jar": b"second"}
JARS = JarSet(
    "pair",
    DEFINITIONS / "none.xml",
    {file: hashlib.sha256(content).hexdigest() for file, content in CONTENT.items()},
)


class Origin:
    """Where jars come from: hands out `content`, or is out of reach if there is none."""

    def __init__(self, content: Mapping[str, bytes] | None) -> None:
        self.content = content
        self.asked = 0

    def __call__(self, jars: JarSet, folder: Path) -> None:
        self.asked += 1
        if self.content is None:
            raise ConfigError("no network")
        for file, content in self.content.items():
            (folder / file).write_bytes(content)


def contents(jars: tuple[Path, ...]) -> dict[str, bytes]:
    return {jar.name: jar.read_bytes() for jar in jars}


@pytest.fixture
def full_cache(tmp_path: Path) -> Path:
    JarCache(tmp_path, Origin(CONTENT)).ensure(JARS)
    return tmp_path


def test_an_empty_cache_is_filled_once(tmp_path: Path) -> None:
    origin = Origin({**CONTENT, "extra.jar": b"that the lock does not name"})
    cache = JarCache(tmp_path, origin)

    assert contents(cache.ensure(JARS)) == CONTENT
    assert contents(cache.ensure(JARS)) == CONTENT
    assert origin.asked == 1


def test_a_corrupt_jar_is_told_and_fetched_again(full_cache: Path) -> None:
    jar = full_cache / "pair" / "two-2.0.jar"
    jar.write_bytes(b"bit rot")

    assert len(JarCache(full_cache, Origin(CONTENT)).faults(JARS)) == 1
    assert jar.read_bytes() == b"bit rot"
    assert contents(JarCache(full_cache, Origin(CONTENT)).ensure(JARS)) == CONTENT


@pytest.mark.parametrize(("damage", "what"), [(b"bit rot", "corrupt"), (None, "missing jar")])
def test_a_bad_jar_without_a_network_is_named_and_not_used(
    full_cache: Path, damage: bytes | None, what: str
) -> None:
    jar = full_cache / "pair" / "two-2.0.jar"
    jar.unlink()
    if damage:
        jar.write_bytes(damage)

    with pytest.raises(ConfigError) as refused:
        JarCache(full_cache, Origin(None)).ensure(JARS)

    (fault,) = refused.value.faults
    assert fault.where == str(jar)
    assert what in fault.what
    assert not damage or JARS.sha256[jar.name] in fault.expected
    assert "ONCEFLOW_CACHE" in refused.value.then


def test_fetched_jars_that_are_not_the_locked_ones_are_thrown_away(tmp_path: Path) -> None:
    forged = {**CONTENT, "two-2.0.jar": b"forged"}

    with pytest.raises(ConfigError, match="not the locked ones") as refused:
        JarCache(tmp_path, Origin(forged)).ensure(JARS)

    assert len(refused.value.faults) == 1
    assert list(tmp_path.rglob("*.jar")) == []


def test_what_a_killed_fetch_left_is_removed_by_the_next(tmp_path: Path) -> None:
    abandoned = tmp_path / ".fetch-abandoned"
    abandoned.mkdir()

    JarCache(tmp_path, Origin(CONTENT)).ensure(JARS)

    assert not abandoned.exists()


def test_a_lock_is_what_sha256sum_prints(full_cache: Path) -> None:
    lines = lock_text(full_cache / "pair").splitlines()

    assert lines == [f"{JARS.sha256[file]}  {file}" for file in sorted(CONTENT)]


@pytest.mark.parametrize(
    ("name", "jar", "count"),
    [
        ("broker", "kafka_2.13-4.3.1.jar", 46),
        ("broker-4.1", "kafka_2.13-4.1.1.jar", 46),
        ("clients", "spark-sql-kafka-0-10_2.13-4.2.0.jar", 5),
    ],
)
def test_the_published_sets_are_locked_completely(name: str, jar: str, count: int) -> None:
    jars = jar_set(name)

    assert jar in jars.sha256
    assert len(jars.sha256) == count
    assert all(len(digest) == 64 for digest in jars.sha256.values())
    assert jars.definition.is_file()
