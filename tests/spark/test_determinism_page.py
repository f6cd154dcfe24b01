"""Every example of docs/determinism.md gets the verdict that stands above it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from onceflow.errors import Fault
from onceflow.pipeline.analysis.analysis import Analysis
from onceflow.pipeline.file.rules import Rule
from tests.support.pipelines import CLICKS

PAGE = Path(__file__).parents[2] / "docs" / "determinism.md"
BLOCK = re.compile(
    r"^```(sql|python)\n(?:--|#) (refused: (?P<rule>[A-Z-]+)|fine)\n(.*?)^```$", re.M | re.S
)
EXAMPLES = [(m[1], m["rule"], m[4]) for m in BLOCK.finditer(PAGE.read_text())]
SOURCES = CLICKS.replace("_key BINARY", "_key BINARY, _partition INT, _offset BIGINT")
PRICES = """\
  prices:
    kafka: {topics: [prices]}
    schema: "page STRING, cents INT, set_at TIMESTAMP"
    event_time: set_at
    lateness: 10 seconds
"""


@pytest.mark.parametrize(("language", "rule", "code"), EXAMPLES)
def test_an_example_gets_its_verdict(
    analysed: Callable[..., Analysis],
    faults: Callable[..., tuple[Fault, ...]],
    module: Path,
    language: str,
    rule: str | None,
    code: str,
) -> None:
    sources = SOURCES + (PRICES if "prices p" in code else "")
    code = code.replace("{folder}", str(module.parent))
    module.write_text(code)
    (module.parent / "pages.json").write_text('{"page": "/"}')
    transform = f"{module.stem}:transform" if language == "python" else ""
    if rule is None:
        assert analysed(code, sources=sources, transform=transform).warnings == ()
    else:
        assert rule in {f.rule for f in faults(code, sources=sources, transform=transform)}


def test_every_rule_has_a_section() -> None:
    sections = set(re.findall(r"^### (ND-[A-Z]+)$", PAGE.read_text(), re.M))
    assert sections == {rule.value for rule in Rule if rule.name.startswith("ND_")}


def test_every_rule_has_both_examples() -> None:
    refused = {rule for _, rule, _ in EXAMPLES if rule}
    # A processor needs Spark's newest API around it; `tests/unit` has both.
    assert refused == {r.value for r in Rule if r.name.startswith("ND_")} - {Rule.ND_STATE}
    assert sum(rule is None for _, rule, _ in EXAMPLES) == len(refused)
