"""The promises of a source as tests, for packages that add a kind of source. Needs pytest.

Derive a test class from `SourceContract`, and from the promises that your origin can be asked to
show (`TransactionPromises`, `CompactionPromises`, `RetentionPromises`, `IdentityPromises`,
`GrowthPromises`). Give it a fixture `origin`: a fresh place that the tests write to, with two empty
partitions, and the block that reads it.

    class TestMySource(SourceContract, RetentionPromises):
        @pytest.fixture
        def origin(self, tmp_path):
            return MyOrigin(tmp_path)
"""

import pytest

# Before they are imported, so that a failed assertion shows what it compared.
pytest.register_assert_rewrite(
    "onceflow.testing.sources.reading", "onceflow.testing.sources.contract"
)

from onceflow.testing.sources.contract import (  # noqa: E402
    CompactionPromises,
    GrowthPromises,
    IdentityPromises,
    RetentionPromises,
    SourceContract,
    TransactionPromises,
)
from onceflow.testing.sources.reading import (  # noqa: E402
    SPEC,
    Origin,
    Record,
    RecordsRead,
    SourceUnderTest,
    Transaction,
)

__all__ = [
    "SPEC",
    "CompactionPromises",
    "GrowthPromises",
    "IdentityPromises",
    "Origin",
    "Record",
    "RecordsRead",
    "RetentionPromises",
    "SourceContract",
    "SourceUnderTest",
    "Transaction",
    "TransactionPromises",
]
