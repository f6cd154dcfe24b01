"""`python -m tests.support.drivers.writing ADDRESS NAME BATCHES`: a service without Spark.

Takes over, writes batch after batch, and takes over again when another process has, as a
supervisor would start a service again. Prints the run_id with each batch that it has committed.
Ends when the ledger holds the last batch.
"""

from __future__ import annotations

import sys

from onceflow.errors import DeadlineError, FencedError, OutcomeUnknownError
from tests.support.drivers.driver import Driver
from tests.support.drivers.stage import VALUES

MAX_STARTS = 100
"""Take-overs of one process; a test that needs more has a fault."""


def main() -> None:
    """Start again after whatever a supervisor would start again after."""
    address, name, batches = sys.argv[1:]
    for _ in range(MAX_STARTS):
        with Driver(address, name, name) as driver:
            try:
                _write(driver, int(batches))
            except (FencedError, DeadlineError, OutcomeUnknownError):
                continue
            return
    sys.exit(1)


def _write(driver: Driver, batches: int) -> None:
    driver.take_over()
    assert driver.head is not None
    while driver.head.batch.batch_id + 1 < batches:
        driver.commit(driver.head.batch.batch_id + 1, VALUES)
        print(driver.run_id, flush=True)  # noqa: T201  for the parent process


if __name__ == "__main__":
    main()
