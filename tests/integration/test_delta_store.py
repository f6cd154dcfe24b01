"""The target `delta` in an object store that loses answers, is away, lies, or does not know us."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from onceflow.contracts.target import Batch, Mark, Target
from onceflow.errors import ConfigError, OutcomeUnknownError, RetriableError
from tests.support.batches import DDL, PLACE, after, batch, numbered
from tests.support.sites.object_store import SECRET_KEY, ObjectStore, running_store
from tests.support.sites.store_proxy import StoreProxy
from tests.support.sites.tables import KEYS, in_store

pytestmark = pytest.mark.long  # the store is built by Go


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with running_store(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture
def proxy(store: ObjectStore) -> Iterator[StoreProxy]:
    with StoreProxy(store.port).running() as proxy:
        yield proxy


def test_a_store_that_ignores_conditions_is_refused(
    tmp_path: Path, store: ObjectStore, proxy: StoreProxy
) -> None:
    proxy.ignores_conditions = True
    place = in_store(tmp_path, store, uuid.uuid4().hex, proxy.port)
    message = "the store ignores conditions of writes"
    with closing(place.target(DDL)) as target, pytest.raises(ConfigError, match=message):
        target.check()
    direct = replace(place, storage={**(place.storage or {}), "endpoint": store.endpoint})
    assert not DeltaTable.is_deltatable(direct.uri, direct.options)


def test_an_answer_that_is_lost_neither_loses_nor_repeats_a_row(
    tmp_path: Path, store: ObjectStore, proxy: StoreProxy
) -> None:
    place = in_store(tmp_path, store, uuid.uuid4().hex, proxy.port)
    with closing(place.target(DDL)) as target:
        claim = target.claim(PLACE)
        for n, ending in enumerate([".parquet", "", ".json"]):
            written = batch(claim, numbered(n, 1))
            with proxy.losing_an_answer(ending):
                written = until_written(target, written)
            claim = after(written)
        with proxy.losing_an_answer(".json"):
            assert target.claim(PLACE).mark == Mark(3, "after 3")
    assert place.rows() == sorted(numbered(0, 3), key=repr)


def until_written(target: Target, written: Batch) -> Batch:
    for _ in range(3):
        try:
            target.write(written)
        except (RetriableError, OutcomeUnknownError):
            continue
        return written
    raise AssertionError("not written")


def test_a_store_that_is_away_is_reported_and_found_again(
    tmp_path: Path, store: ObjectStore, proxy: StoreProxy
) -> None:
    place = in_store(tmp_path, store, uuid.uuid4().hex, proxy.port)
    with closing(place.target(DDL)) as target:
        written = batch(target.claim(PLACE), numbered(0, 1))
        with proxy.away():
            with pytest.raises(RetriableError):
                target.write(written)
            with pytest.raises(RetriableError, match="the table cannot be read"):
                target.probe()
        target.probe()
        target.write(written)
    assert place.rows() == numbered(0, 1)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (KEYS.replace("the-secret", "another"), "the table cannot be written"),
        (KEYS.replace("the-key", "a-stranger"), "the table cannot be written"),
        (KEYS.replace("aws_secret_access_key", "password"), "cannot read `credentials_file`"),
        (KEYS.replace("[default]", ""), "cannot read `credentials_file`"),
    ],
)
def test_wrong_keys_are_one_sentence_without_them(
    tmp_path: Path, store: ObjectStore, keys: str, message: str
) -> None:
    place = in_store(tmp_path, store, uuid.uuid4().hex)
    (tmp_path / "keys").write_text(keys)
    with closing(place.target(DDL)) as target, pytest.raises(ConfigError, match=message) as refused:
        target.check()
    told = str(refused.value)
    assert SECRET_KEY not in told
    assert "the-another" not in told
    assert "\n" not in told
    assert refused.value.__cause__ is None
