"""A table of Delta Lake as a target: rows and positions in one commit, fenced by claims.

A commit names versions of "applications": here, three for each partition. `claim` is the number of
the newest claim, `offset` the position, and `state` names a file next to the table that holds the
state of the filter, which does not fit into a number: by a hash of its content, so that two
instances that write it write the same. The file is there before the commit that makes it count.

Fencing: every commit of a claim or of rows names `claim`. The library refuses a commit if another
one that names the same application came after what the commit is based on. So what is read from a
`DeltaTable` and compared holds for the commit that is made with that very object, or it fails.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from onceflow.clock import Clock, SystemClock
from onceflow.contracts.connector import Place
from onceflow.contracts.target import Batch, Claim, Held, Mark, Move, is_unwritten
from onceflow.contracts.target_block import TargetSpec
from onceflow.crashpoints import CrashPoint, reach
from onceflow.errors import ConfigError, CorruptionError, RetriableError, require
from onceflow_connectors.delta.block import DeltaBlock
from onceflow_connectors.delta.failures import FAILURES, failure
from onceflow_connectors.delta.rows import DataFile, RowWriter, arrow_schema
from onceflow_connectors.delta.storage import OWN_FOLDER, storage_of
from onceflow_connectors.delta.table import table_faults

CHECKPOINT_EVERY = 50
"""Commits. Each reads and writes what all commits since the last checkpoint left in the log."""
_ATTEMPTS = 10
"""To commit, where others commit at the same moment."""
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""A checkpoint is only used after it was synced."""
_STATE = re.compile(
    rf"{OWN_FOLDER}/[^/]+/(?P<topic>[^/]+)/(?P<partition>\d+)-(?P<offset>\d{{20}})-[0-9a-f]{{16}}"
)
_KEEPS_LOG = "delta.enableExpiredLogCleanup"


@dataclass
class _Open:
    """A table as it was last looked at, and what makes its files.

    Args:
        shape: everything that `writer` and the checks depend on.
        checkpoint_at: the version at which the next checkpoint is due.
    """

    table: DeltaTable
    shape: object
    writer: RowWriter
    checkpoint_at: int


class DeltaTarget:
    """Implements `contracts.target.Target`."""

    def __init__(self, block: DeltaBlock, spec: TargetSpec, clock: Clock | None = None) -> None:
        self._block = block
        self._spec = spec
        self._clock = clock or SystemClock()
        self._storage = storage_of(block, spec.folder)
        self._opened: _Open | None = None
        self._table_id: str | None = None

    def check(self) -> None:
        self.close()
        with self._reporting("the table cannot be written"):
            self._storage.check()
        with self._fresh("the table cannot be opened"):
            pass

    def probe(self) -> None:
        with self._fresh("the table cannot be read"):
            pass

    def claim(self, place: Place) -> Claim:
        for _ in range(_ATTEMPTS):
            with self._fresh("the position cannot be claimed") as opened:
                mark = self._mark(opened.table, place)
                claim_epoch = (self._version(opened.table, place, "claim") or 0) + 1
                transaction = self._transaction(place, "claim", claim_epoch)
                if not self._commit(opened, (), [transaction]):
                    continue
                self._storage.sync_log()
                if mark is not None:
                    self._tidy(place, mark)
            return Claim(place, claim_epoch, mark)
        raise self._busy("the position was not claimed", [place])

    def positions(self) -> Mapping[Place, Mark]:
        with self._fresh("the positions cannot be read") as opened:
            places = {place for place, _, _ in self._states()}
            found = {place: self._mark(opened.table, place) for place in places}
        return {place: mark for place, mark in found.items() if mark is not None}

    def write(self, batch: Batch) -> None:
        for _ in range(_ATTEMPTS):
            with self._fresh("a batch was not written") as opened:
                if not is_unwritten(batch.moves, self._held(opened.table, batch.moves)):
                    return
                added = [self._put(file) for file in _files(opened.writer, batch)]
                reach(CrashPoint.MID_PRODUCE)
                self._put_states(batch.moves)
                reach(CrashPoint.AFTER_EFFECT)
                transactions = self._transactions(batch.moves)
                reach(CrashPoint.BEFORE_COMMIT)
                if not self._commit(opened, added, transactions):
                    continue
                reach(CrashPoint.COMMIT_UNKNOWN)
                self._storage.sync_log()
                reach(CrashPoint.AFTER_COMMIT)
                self._remove_states(batch.moves)
            return
        raise self._busy("a batch was not written", [move.claim.place for move in batch.moves])

    def refused(self, batch: Batch) -> Mapping[int, str]:
        with self._fresh("rejected rows cannot be found") as opened:
            return {} if batch.table is None else opened.writer.refused(batch.table)

    def close(self) -> None:
        self._opened = None

    @property
    def _subject(self) -> str:
        return f"Delta Lake, table {self._block.path}"

    def _busy(self, what: str, places: Sequence[Place]) -> RetriableError:
        where = ", ".join(f"{topic}[{partition}]" for topic, partition in places)
        found = f"other commits at the same moment, {_ATTEMPTS} times"
        return RetriableError(what, subject=f"{self._subject}, {where}", found=found)

    @contextmanager
    def _reporting(self, what: str) -> Iterator[None]:
        """Turn errors into ours. After any, the table is opened again."""
        try:
            yield
        except FAILURES as error:
            self.close()
            # Without the cause: its text is long, and shows what was sent.
            raise failure(error, what, self._subject, in_commit=False) from None
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _fresh(self, what: str) -> Iterator[_Open]:
        """Lend the table as it is now. Errors are turned into ours."""
        with self._reporting(what):
            opened = self._opened
            if opened is None or not self._storage.is_same():
                opened = self._opened = self._open()
            else:
                opened.table.update_incremental()
                if _shape(opened.table) != opened.shape:
                    opened = self._opened = self._open()
                elif opened.table.version() >= opened.checkpoint_at:
                    opened = self._opened = self._shortened(opened)
            self._storage.sync_log()
            yield opened

    def _open(self) -> _Open:
        storage, block, columns = self._storage, self._block, self._spec.columns
        storage.recover()
        options = {**storage.options()}
        try:
            table = DeltaTable(storage.uri, storage_options=options)
        except TableNotFoundError:
            table = self._created(options)
            storage.recover()
        table_id = str(table.metadata().id)
        if self._table_id not in {None, table_id}:
            raise self._another_table(f"the table {table_id}")
        if faults := tuple(table_faults(table, block, columns)):
            what = "the table does not fit the delivery"
            raise ConfigError(what, subject=self._subject, faults=faults)
        self._table_id = table_id
        fields = table.schema().fields
        required = frozenset(each.name for each in fields if not each.nullable)
        writer = RowWriter(columns, required, table.metadata().partition_columns)
        return _Open(table, _shape(table), writer, table.version() + CHECKPOINT_EVERY)

    def _created(self, options: Mapping[str, str]) -> DeltaTable:
        if self._table_id is not None:
            raise self._another_table("no table")
        if not self._block.create:
            then = "nothing was written; create it, correct `path`, or set `create: true`"
            raise ConfigError("the table does not exist", subject=self._subject, then=then)
        uri, settings = self._storage.uri, {**options}
        try:
            return DeltaTable.create(
                uri,
                Schema.from_arrow(arrow_schema(self._spec.columns)),
                mode="error",
                partition_by=[*self._block.partition_by],
                storage_options=settings,
            )
        except DeltaError as error:
            try:
                return DeltaTable(uri, storage_options=settings)  # of another instance
            except TableNotFoundError:
                raise error from None

    def _another_table(self, found: str) -> ConfigError:
        return ConfigError(
            "the table was removed or created again",
            subject=self._subject,
            expected=f"the table {self._table_id}",
            found=found,
            then="nothing was written; started again, the delivery begins there with the first"
            " record",
        )

    def _shortened(self, opened: _Open) -> _Open:
        """Write a checkpoint, so that the log up to here need not be read again."""
        table = opened.table
        self._storage.sync_log()
        table.create_checkpoint()
        self._storage.sync_checkpoint()
        if table.metadata().configuration.get(_KEEPS_LOG) != "false":
            table.cleanup_metadata()
        return self._open()

    def _commit(
        self, opened: _Open, added: Sequence[AddAction], transactions: Sequence[Transaction]
    ) -> bool:
        """Commit; False if a commit of others came between, or this one's answer was lost."""
        table = opened.table
        what = "a commit was not answered"
        try:
            table.create_write_transaction(
                [*added],
                mode="append",
                schema=table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=CommitProperties(app_transactions=[*transactions]),
                post_commithook_properties=_NO_HOOKS,
            )
        except CommitFailedError as error:
            found = failure(error, what, self._subject, in_commit=True)
            if isinstance(found, ConfigError):
                raise found from None
            return False
        except FAILURES as error:
            raise failure(error, what, self._subject, in_commit=True) from None
        return True

    def _put(self, file: DataFile) -> AddAction:
        name = f"part-{uuid.uuid4()}.parquet"
        self._storage.put(name, file.content)
        return AddAction(
            path=name,
            size=len(file.content),
            partition_values=file.partition,
            modification_time=self._clock.unix_ms(),
            data_change=True,
            stats=file.statistics,
        )

    def _put_states(self, moves: Sequence[Move]) -> None:
        for move in moves:
            self._storage.put(self._state_name(move.claim.place, move.to), move.to.state.encode())

    def _remove_states(self, moves: Sequence[Move]) -> None:
        """Remove those that came before. Never one that a successor may need: offsets only rise."""
        for move in moves:
            before = move.claim.mark
            if before is not None and before.offset < move.to.offset:
                self._storage.delete(self._state_name(move.claim.place, before))

    def _tidy(self, place: Place, mark: Mark) -> None:
        """Remove states that processes left behind which died between two steps."""
        for other, offset, name in [*self._states()]:
            if other == place and offset < mark.offset:
                self._storage.delete(name)

    def _mark(self, table: DeltaTable, place: Place) -> Mark | None:
        """Read the position. The table may be looked at again: its owner may just move on."""
        earlier = None
        for _ in range(_ATTEMPTS):
            offset = self._version(table, place, "offset")
            digest = self._version(table, place, "state")
            if offset is None or digest is None:
                return None
            name = self._file_name(place, offset, digest)
            content = self._storage.get(name)
            state = None if content is None else content.decode(errors="replace")
            if state is not None and _digest(state) == digest:
                return Mark(offset, state)
            if name == earlier:
                # An instance that removes a state has committed a later position before.
                raise CorruptionError(
                    "the state of the filter is missing or damaged",
                    subject=f"{self._subject}, file {name}",
                    expected="the content that its name was made of",
                    found="no file" if state is None else "other content",
                    then="nothing was written; restore the file from a backup",
                )
            earlier = name
            table.update_incremental()
        raise self._busy("the position was not read", [place])

    def _states(self) -> Iterator[tuple[Place, int, str]]:
        """Place, offset and name of every file with a state."""
        for name in self._storage.names(f"{OWN_FOLDER}/{self._spec.delivery}"):
            if found := _STATE.fullmatch(name):
                yield (found["topic"], int(found["partition"])), int(found["offset"]), name

    def _state_name(self, place: Place, mark: Mark) -> str:
        return self._file_name(place, mark.offset, _digest(mark.state))

    def _file_name(self, place: Place, offset: int, digest: int) -> str:
        topic, partition = place
        folder = f"{OWN_FOLDER}/{self._spec.delivery}/{topic}"
        return f"{folder}/{partition}-{offset:020}-{digest:016x}"

    def _held(self, table: DeltaTable, moves: Sequence[Move]) -> Mapping[Place, Held]:
        found = {}
        for move in moves:
            place = move.claim.place
            claimed = self._version(table, place, "claim")
            if claimed is not None:
                found[place] = Held(claimed, self._version(table, place, "offset"))
        return found

    def _transactions(self, moves: Sequence[Move]) -> Sequence[Transaction]:
        return [
            self._transaction(move.claim.place, name, version)
            for move in moves
            for name, version in (
                ("claim", move.claim.claim_epoch),
                ("offset", move.to.offset),
                ("state", _digest(move.to.state)),
            )
        ]

    def _transaction(self, place: Place, name: str, version: int) -> Transaction:
        return Transaction(self._application(place, name), version, self._clock.unix_ms())

    def _version(self, table: DeltaTable, place: Place, name: str) -> int | None:
        return table.transaction_version(self._application(place, name))

    def _application(self, place: Place, name: str) -> str:
        topic, partition = place
        return f"onceflow/{self._spec.delivery}/{topic}/{partition}/{name}"


def _files(writer: RowWriter, batch: Batch) -> Sequence[DataFile]:
    if batch.table is None:
        require(not batch.records and not batch.rows, "rows for a table come as a table")
        return ()
    return writer.files(batch.table)


def _shape(table: DeltaTable) -> object:
    """Columns, rules and identity of a table: equal as long as no one has changed them."""
    metadata, protocol = table.metadata(), table.protocol()
    return (
        metadata.id,
        metadata.partition_columns,
        metadata.configuration,
        table.schema().to_json(),
        protocol.min_writer_version,
        protocol.writer_features,
    )


def _digest(state: str) -> int:
    """A hash that fits into the version of an application, 63 bits."""
    return int.from_bytes(blake2b(state.encode(), digest_size=8).digest()) >> 1
