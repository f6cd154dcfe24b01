"""The promises of a target of deliveries as tests. Needs pytest, neither Spark nor Arrow.

Derive a test class from `TargetContract`, and from `RefusalPromises` if the target can refuse a
row. Give it a fixture `store`: a fresh, empty place that the target writes to. A receiver that
keeps no position has `SenderContract`, and a fixture `receiver`.

    class TestMyTarget(TargetContract, RefusalPromises):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path)
"""

import pytest

# Before it is imported, so that a failed assertion shows what it compared.
pytest.register_assert_rewrite("onceflow.testing.targets.contract")

from onceflow.testing.targets.contract import (  # noqa: E402
    COLUMNS,
    Receiver,
    RefusalPromises,
    RefusingReceiver,
    RefusingStore,
    SenderContract,
    Store,
    TargetContract,
)

__all__ = [
    "COLUMNS",
    "Receiver",
    "RefusalPromises",
    "RefusingReceiver",
    "RefusingStore",
    "SenderContract",
    "Store",
    "TargetContract",
]
