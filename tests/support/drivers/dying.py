"""`python -m tests.support.drivers.dying ADDRESS NAME`: a driver that loses the answer to a commit.

Run with the crash point `commit_unknown` armed, it dies between hearing nothing and finding out.
"""

from __future__ import annotations

import sys

from tests.support.drivers.driver import Driver
from tests.support.drivers.faulty import Faults


def main() -> None:
    """Register, write a batch, lose the answer to its commit."""
    address, name = sys.argv[1:]
    faults = Faults()
    with Driver(address, name, name, wrap=faults.wrap) as driver:
        driver.take_over()
        faults.loses_answer = 1
        driver.commit(0, [b'{"n":%d}' % n for n in range(40)])


if __name__ == "__main__":
    main()
