"""Writes numbered rows into a table of Delta Lake, and says on standard output what is written.

python -m tests.support.delta_writer FOLDER BATCHES
"""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from onceflow.contracts.target import Batch, Mark, Move
from onceflow_connectors.delta import target as module
from tests.support.batches import DDL, PLACE, numbered
from tests.support.sites.tables import on_disk

ROWS = 2
MARK = b"written "


def main(folder: Path, batches: int) -> None:
    module.CHECKPOINT_EVERY = 4
    with closing(on_disk(folder).target(DDL)) as target:
        target.check()
        claim = target.claim(PLACE)
        for _ in range(batches):
            start = claim.mark.offset if claim.mark else 0
            end = start + ROWS
            move = Move(claim, Mark(end, f"after {end}"))
            target.write(Batch((), numbered(start, ROWS), [move]))
            claim = replace(claim, mark=move.to)
            os.write(1, MARK + str(end).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
