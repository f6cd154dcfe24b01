"""The control API under requests that no person would think of, made from its own description."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans

from tests.support.clock import ManualClock
from tests.support.sites.control import Callers, Site, answered, living

EXAMPLES = 40
ANSWER_TIMEOUT_S = 120
"""The first validation starts Spark."""
NEVER = {500, 503, 504}
"""502 is the answer of brokers that do not answer, as here."""


class HurryingClock(ManualClock):
    """A second passes at each look, so that the bound on requests is not met."""

    def monotonic_s(self) -> float:
        self.sleep(1)
        return super().monotonic_s()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("site")
    with living(Site(folder, clock=HurryingClock())) as made:
        yield made


@pytest.fixture(scope="module")
def callers(site: Site) -> Iterator[Callers]:
    with answered(site) as made:
        yield made


@pytest.fixture
def api(site: Site, callers: Callers) -> Any:
    # It takes seconds, also of every worker that only collects this file.
    import schemathesis  # noqa: PLC0415

    headers = {"Authorization": f"Bearer {site.writer}"}
    return schemathesis.openapi.from_url(f"{callers.address}/v1/openapi.json", headers=headers)


def test_no_request_breaks_it(api: Any, site: Site) -> None:
    from schemathesis.checks import not_a_server_error  # noqa: PLC0415

    headers = {"Authorization": f"Bearer {site.writer}"}
    sent: Counter[str] = Counter()

    def check(case: Any, is_here: bool) -> None:
        if is_here and "name" in case.path_parameters:
            case.path_parameters["name"] = "views"
        answer = case.call_and_validate(
            headers=headers, excluded_checks=[not_a_server_error], timeout=ANSWER_TIMEOUT_S
        )
        assert answer.status_code not in NEVER, answer.text
        sent[case.operation.label] += 1

    bounds = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[*HealthCheck])
    for found in api.get_all_operations():
        operation = found.ok()
        bounds(given(case=operation.as_strategy(), is_here=booleans())(check))()
    assert len(sent) == 18
    assert min(sent.values()) > 0
