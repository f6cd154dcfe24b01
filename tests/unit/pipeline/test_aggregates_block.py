"""Aggregates that a pipeline file declares: read, made, and looked at for their laws."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic_core import PydanticCustomError

from onceflow.errors import ConfigError
from onceflow.pipeline.analysis import laws
from onceflow.pipeline.analysis.laws import REMEDY
from onceflow.pipeline.determinism.python_code import inspect_code
from onceflow.pipeline.file.aggregate import AggregateCall, parse_call
from onceflow.pipeline.file.loader import load_pipeline
from onceflow.pipeline.query.aggregates import declared_aggregates
from onceflow.settings import Settings
from tests.support.pipelines import pipeline_text, write_pipeline

EXAMPLES = Path(__file__).parents[3] / "examples"
OWN = """\
from onceflow.aggregates import Aggregate

class Longest(Aggregate):
    input = accumulator = output = "string"

    def zero(self):
        return None

    def add(self, acc, value):
        return self.merge(acc, value)

    def merge(self, a, b):
        return max(a, b, key=lambda text: len(text or ""))

    def result(self, acc):
        return acc
"""


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("mine:Top", AggregateCall("mine:Top", (), ())),
        (
            "onceflow.aggregates:TopK('string', k=3)",
            AggregateCall("onceflow.aggregates:TopK", ("string",), (("k", 3),)),
        ),
        (
            "a.b:H('int', [1, -2])",
            AggregateCall("a.b:H", ("int", [1, -2]), ()),
        ),
    ],
)
def test_an_aggregate_is_a_class_with_literals(text: str, call: AggregateCall) -> None:
    assert parse_call(text) == call


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mine",
        "mine:",
        ":Top",
        "mine:Top(",
        "mine:Top(x)",
        "mine:Top(__import__('os').system('x'))",
        "mine:Top(*[1])",
        "mine:Top(**{'a': 1})",
        "mine:Top.other",
        "mine:Top()()",
        "mine:a + b",
        "../mine:Top",
        "mine:Top(" + "(" * 5000,
        "mine:Top('\0')\0",
    ],
)
def test_anything_else_is_refused_and_not_run(text: str) -> None:
    with pytest.raises(PydanticCustomError, match="not an aggregate"):
        parse_call(text)


def declared(folder: Path, aggregates: Mapping[str, str], code: str = OWN) -> str:
    """The folder's module `MODULE` in a text is the code."""
    module = f"own_{abs(hash(folder.name))}"
    (folder / f"{module}.py").write_text(code)
    lines = (f"  {name}: {text.replace('MODULE', module)}\n" for name, text in aggregates.items())
    return "aggregates:\n" + "".join(lines) + pipeline_text()


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("sum", "onceflow.aggregates:Count('int')", "`sum` is a function of Spark SQL"),
        ("n", "onceflow.aggregates:TopK('int')", "cannot be made: TypeError"),
        ("n", "onceflow.aggregates:Count('integr')", "integr"),
        ("n", "onceflow.aggregates:Sum('string')", "expected a type of numbers, found string"),
        ("n", "onceflow.aggregates:Nothing", "has no Nothing"),
        ("n", "nowhere_at_all:Count", "cannot be imported"),
        ("n", "json:dumps", "json:dumps is not an aggregate"),
        ("n", "onceflow.aggregates:Aggregate", "abstract"),
    ],
)
def test_what_cannot_be_made_is_refused_under_its_name(
    tmp_path: Path, name: str, text: str, told: str
) -> None:
    file = write_pipeline(tmp_path, declared(tmp_path, {name: text}))
    with pytest.raises(ConfigError) as refused:
        declared_aggregates(file.pipeline)
    (fault,) = refused.value.faults
    assert fault.where == name
    assert told in f"{fault}"


def test_a_law_that_is_broken_is_told_with_values_and_line(tmp_path: Path) -> None:
    aggregates = {"ready": "onceflow.aggregates:Count('int')", "longest": "MODULE:Longest"}
    code = OWN.replace('max(a, b, key=lambda text: len(text or ""))', "b if a is None else a")
    file = write_pipeline(tmp_path, declared(tmp_path, aggregates, code))
    faults = list(laws.law_faults(file))
    assert {(fault.line, fault.where, fault.rule) for fault in faults} == {
        (3, "aggregates.longest", "broken-law")
    }
    told = str(faults[0])
    assert "Longest: merge depends on the order of the two (it is not commutative)" in told
    assert told.endswith(f"'' is not '0', with a of [''], b of ['0']. {REMEDY}")


def test_that_of_the_example_keeps_them() -> None:
    file = load_pipeline(EXAMPLES / "running-totals" / "pipeline.yaml")
    assert list(laws.law_faults(file)) == []


def test_one_that_keeps_the_laws_is_taken_unless_its_samples_break_them(tmp_path: Path) -> None:
    right = OWN.replace('len(text or "")', '(len(text or ""), text or "")')
    file = write_pipeline(tmp_path, declared(tmp_path, {"longest": "MODULE:Longest"}, right))
    assert list(laws.law_faults(file)) == []
    other = tmp_path / "other"
    other.mkdir()
    wrong = right.replace("return max", "return b if a == 'a rare one' else max").replace(
        '"string"\n', '"string"\n    samples = ["a rare one", "a longer rare one"]\n', 1
    )
    file = write_pipeline(other, declared(other, {"longest": "MODULE:Longest"}, wrong))
    assert "a rare one" in "".join(map(str, laws.law_faults(file)))


def test_without_hypothesis_it_is_said_and_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_pipeline(tmp_path, declared(tmp_path, {"longest": "MODULE:Longest"}))
    assert list(laws.unchecked_laws(file)) == []
    monkeypatch.setattr(laws, "find_spec", lambda _: None)
    (told,) = laws.unchecked_laws(file)
    assert "the laws of longest were not checked" in told.what
    assert told.suggestion == "Install `onceflow[laws]`."


def test_code_of_the_user_is_an_aggregate_only_where_it_may_run(tmp_path: Path) -> None:
    forbidden = Settings(transforms=False)
    ready = declared(tmp_path, {"n": "onceflow.aggregates:Count('int')"})
    forbidden.require_allowed(write_pipeline(tmp_path, ready), is_trusted=True)
    own = write_pipeline(tmp_path, declared(tmp_path, {"n": "MODULE:Longest"}))
    with pytest.raises(ConfigError, match=r"line 2, aggregates.n: .* not bring Python code here"):
        forbidden.require_allowed(own, is_trusted=True)


def test_its_code_is_part_of_what_is_computed(tmp_path: Path) -> None:
    text = declared(tmp_path, {"longest": "MODULE:Longest"})
    before = write_pipeline(tmp_path, text).pipeline.result_parts()
    (module,) = tmp_path.glob("*.py")
    module.write_text(OWN.replace("max(", "min("))
    after = write_pipeline(tmp_path, text).pipeline.result_parts()
    assert before["code"] != after["code"]
    assert before["aggregates"] == after["aggregates"]
    assert "aggregates" not in write_pipeline(tmp_path, pipeline_text()).pipeline.result_parts()


def test_an_attribute_that_is_kept_is_refused(tmp_path: Path) -> None:
    text = declared(tmp_path, {"longest": "MODULE:Longest"})
    (module,) = tmp_path.glob("*.py")
    module.write_text(OWN.replace("return self.merge", "self.seen = value; return self.merge"))
    pipeline = write_pipeline(tmp_path, text).pipeline
    (made,) = declared_aggregates(pipeline).values()
    (found,) = inspect_code([type(made)], tmp_path).findings
    assert (found.rule, found.line) == ("ND-STATE", 10)
