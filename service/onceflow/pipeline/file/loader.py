"""From a file to a `Pipeline`, or to every fault in it at once, each with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from onceflow.contracts.block import Block
from onceflow.contracts.values import FAULT_TYPE
from onceflow.errors import ConfigError, Fault, did_you_mean
from onceflow.pipeline.file.formats import Avro
from onceflow.pipeline.file.kinds import FileKind, kind_in
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.rules import Rule
from onceflow.pipeline.text.files import MAX_PIPELINE_BYTES, read_text, require_inside
from onceflow.pipeline.text.keys import KeyIndex
from onceflow.pipeline.text.yaml_text import Document, parse_yaml

B = TypeVar("B", bound=Block)

_EXPECTED: Mapping[str, str] = {
    "string_type": "text (put it in quotes if it looks like a number or true/false)",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "tuple_type": "a list, such as [clicks]",
    "string_too_short": "some text",
    "too_short": "at least one entry",
}
"""Error types of pydantic whose wording does not depend on the place; others are built below."""

_AS_NOW = "a changed file takes effect with the next start"
_INSTEAD: Mapping[FileKind, str] = {
    FileKind.DELIVERY: f"`onceflow status` shows its positions; {_AS_NOW}",
    FileKind.ENRICHMENT: f"`onceflow status` shows its positions; {_AS_NOW}",
    FileKind.GATEWAY: f"`onceflow status` shows its slots; {_AS_NOW}",
}
"""What to do instead of what only pipelines have: a ledger, state, parameters."""
MAX_FAULTS = 100
"""Faults reported of one file. Each is compared with every known key; more are not read."""

_RULES: Mapping[str, Rule] = {
    "missing": Rule.MISSING_KEY,
    "extra_forbidden": Rule.UNKNOWN_KEY,
}
"""Error types of pydantic that do not stand for a wrong value."""


@dataclass(frozen=True)
class PipelineFile:
    """A pipeline and the text it came from, so that later faults can name a line, too.

    Args:
        document: the text with places.
    """

    path: Path
    pipeline: Pipeline
    document: Document

    def fault_at(
        self, rule: Rule, fault: Fault, path: Sequence[str | int], line_of_text: int = 1
    ) -> Fault:
        """Put a fault in its place.

        `line_of_text`, from 1, is the line within the value at fault, if it is a longer text.
        """
        line = self.document.place(path).text_line + line_of_text - 1
        return replace(fault, rule=rule, where=_dotted(path), line=line)

    def faults_at(
        self, rule: Rule, faults: Iterable[Fault], path: Sequence[str | int]
    ) -> list[Fault]:
        """Put faults of one rule in one place."""
        return [self.fault_at(rule, fault, path) for fault in faults]

    @property
    def transformation(self) -> tuple[str]:
        """Path of the key that says what to compute."""
        return ("transform",) if self.pipeline.transform else ("query",)


def load_pipeline(path: Path, text: str | None = None) -> PipelineFile:
    """Read and check a pipeline file, without Spark and without Kafka.

    With a text, that is what the file is going to hold.

    Raises:
        ConfigError: lists every fault. Nothing else: whatever a file holds is its own fault.
    """
    try:
        return _load(path, _read(path) if text is None else text)
    except ConfigError:
        raise
    except Exception as error:  # one bad file must not stop those that load the others
        raise ConfigError(
            "the pipeline file cannot be understood",
            subject=str(path),
            found=type(error).__name__,
            then="report this as a bug of Onceflow, with the file",
        ) from error


def kind_of(path: Path) -> FileKind:
    """The kind that the file says; a pipeline if it cannot be read: its loader says why."""
    try:
        return kind_in(parse_yaml(read_text(path, MAX_PIPELINE_BYTES)).data)
    except ConfigError:
        return FileKind.PIPELINE


def load_file(
    path: Path, model: type[B], misfits: Callable[[B, Document], Iterable[Fault]] | None = None
) -> B:
    """Read and check a file of another kind than a pipeline, from its text alone.

    Args:
        path: of the file.
        model: of its kind; its name is the kind.
        misfits: finds what does not go together, in a file whose every part is right.

    Raises:
        ConfigError: lists every fault.
    """
    kind = model.__name__.lower()
    require_inside(path, path.parent)
    document = parse_yaml(read_text(path, MAX_PIPELINE_BYTES))
    faults = [replace(fault, rule=Rule.MALFORMED_YAML) for fault in document.faults]
    try:
        loaded = model.model_validate(document.data)
    except ValidationError as error:
        faults += validation_faults(error, document, KeyIndex.of_model(model))
        raise _refused(path, faults, kind) from None
    if misfits is not None:
        faults += misfits(loaded, document)
    if faults:
        raise _refused(path, faults, kind)
    return loaded


def _load(path: Path, text: str) -> PipelineFile:
    document = parse_yaml(text)
    faults = [replace(fault, rule=Rule.MALFORMED_YAML) for fault in document.faults]
    if document.data is None:
        raise _refused(path, faults)
    if not isinstance(document.data, dict):
        expected = "a mapping that begins with `apiVersion:`"
        found = Fault("not a pipeline", line=1, expected=expected, rule=Rule.WRONG_VALUE)
        raise _refused(path, (*faults, found))
    if (kind := kind_in(document.data)) is not FileKind.PIPELINE:
        what = f"this is {kind.with_article}, and this command takes pipelines only"
        raise ConfigError(what, subject=str(path), then=_INSTEAD[kind])
    if "kind" in document.data:
        known = ", ".join(kind for kind in FileKind if kind is not FileKind.PIPELINE)
        expected = f"{known}; or no `kind`, for a pipeline"
        line = document.place(("kind",)).line
        found = Fault("unknown kind of file", "kind", line, expected, rule=Rule.WRONG_VALUE)
        raise _refused(path, [found])
    try:
        pipeline = Pipeline.model_validate(document.data).located_in(path.resolve().parent)
    except ValidationError as error:
        keys = KeyIndex.of_model(Pipeline)
        faults += validation_faults(error, document, keys)
        raise _refused(path, faults) from None
    faults += _avro_faults(pipeline, document)
    if faults:
        raise _refused(path, faults)
    return PipelineFile(path, pipeline, document)


def validation_faults(
    error: ValidationError, document: Document, keys: KeyIndex
) -> Iterator[Fault]:
    """The errors of a model as faults with lines of the document that its data came from.

    A missing value that is a fault already is left out.
    """
    already_told = {fault.where for fault in document.faults}
    for details in error.errors(include_url=False, include_input=False)[:MAX_FAULTS]:
        loc = tuple(part for part in details["loc"] if part != "[key]")
        if _dotted(loc) not in already_told:
            rule = _RULES.get(details["type"], Rule.WRONG_VALUE)
            yield replace(_as_fault(details, loc, document, keys), rule=rule)


def _as_fault(
    details: ErrorDetails, loc: tuple[str | int, ...], document: Document, keys: KeyIndex
) -> Fault:
    kind, context = details["type"], details.get("ctx", {})
    where, line = _dotted(loc), document.place(loc).line
    if kind == FAULT_TYPE:
        return Fault(details["msg"], where, line, context["expected"], context["suggestion"])
    if kind == "missing":
        return Fault(f"`{loc[-1]}` is missing", where, line, suggestion=keys.purpose(loc))
    if kind == "extra_forbidden":
        suggestion = keys.suggestion(loc)
        expected = "" if suggestion else f"one of {', '.join(keys.siblings(loc))}"
        return Fault(f"unknown key `{loc[-1]}`", where, line, expected, suggestion)
    if kind == "literal_error":
        return _choice_fault(details, loc, document)
    expected = f"at least {context['ge']}" if "ge" in context else _EXPECTED.get(kind, "")
    return Fault("a wrong kind of value" if expected else details["msg"], where, line, expected)


def _choice_fault(details: ErrorDetails, loc: tuple[str | int, ...], document: Document) -> Fault:
    choices = details["ctx"]["expected"].replace("'", "`")
    names = [part.strip() for part in choices.replace(" or ", ",").replace("`", "").split(",")]
    written = _text_at(document.data, loc)
    suggestion = did_you_mean(written, names)
    line = document.place(loc).line
    return Fault("not one of the possible values", _dotted(loc), line, choices, suggestion)


def _avro_faults(pipeline: Pipeline, document: Document) -> Iterator[Fault]:
    blocks: dict[tuple[str, ...], Avro | None] = {
        ("sources", name, "avro"): source.avro for name, source in pipeline.sources.items()
    }
    blocks["sink", "avro"] = pipeline.sink.avro
    for path, avro in blocks.items():
        if avro is None:
            continue
        try:
            avro.read(pipeline.folder)
        except ConfigError as error:
            where = (*path, "schema_file")
            line = document.place(where).line
            yield Fault(str(error), _dotted(where), line, rule=Rule.WRONG_VALUE)


def _read(path: Path) -> str:
    try:
        require_inside(path, path.parent)
        return read_text(path, MAX_PIPELINE_BYTES)
    except ConfigError as error:
        raise ConfigError(
            "cannot read the pipeline file",
            subject=str(path),
            expected=error.expected,
            found=error.found or "a link that leads elsewhere",
            then="`onceflow init NAME` writes a first one",
        ) from error


def _refused(path: Path, faults: Sequence[Fault], kind: str = "pipeline") -> ConfigError:
    in_order = sorted(faults, key=lambda fault: (fault.line or 0, fault.where))
    return ConfigError(f"{kind} file refused", subject=str(path), faults=tuple(in_order))


def _text_at(data: Any, path: Sequence[str | int]) -> str:
    """The text at a path; empty if there is none: values may come from elsewhere, too."""
    for part in path:
        if not isinstance(data, dict) or part not in data:
            return ""
        data = data[part]
    return str(data)


def _dotted(path: Sequence[str | int]) -> str:
    return ".".join(map(str, path))
