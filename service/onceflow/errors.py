"""Every exception of the product, named by what the runtime must do next.

This module imports no other, so that every layer may raise and catch these classes.

    OnceflowError
    ├── ConfigError          refuse to start; lists every fault at once             exit 2
    ├── RetriableError       the same call again, inside the same Deadline          exit 3
    ├── DeadlineError        give the batch back to Spark; nothing was sent         exit 3
    ├── AbortableError       abort the transaction, run the batch again             exit 3
    ├── FencedError          stop at once: write nothing, abort nothing             exit 4
    ├── OutcomeUnknownError  resolve from the ledger before anything else           exit 5
    ├── RecordError          dead letter or stop, by policy                         exit 6
    ├── LineageError         halt, keep the evidence: wrong checkpoint for ledger   exit 7
    ├── CorruptionError      halt, keep the evidence: two truths disagree           exit 7
    └── InvariantError       crash: it is our bug                                   exit 70
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Fault:
    """One thing wrong with what a user gave us.

    Args:
        what: one clause.
        where: a dotted path in a file, a topic, a setting.
        line: in the user's file, from 1.
        expected: what would have been accepted.
        suggestion: how to fix it, as an imperative sentence.
        rule: name of the rule that it breaks, for programs.
        file: only if it is not the file that the user gave.
    """

    what: str
    where: str = ""
    line: int | None = None
    expected: str = ""
    suggestion: str = ""
    rule: str = ""
    file: str = ""

    def __str__(self) -> str:
        line = "" if self.line is None else f"line {self.line}"
        place = ", ".join(filter(None, (self.file, line, self.where)))
        text = f"{place}: {self.what}" if place else self.what
        if self.expected:
            text += f"; expected {self.expected}"
        return f"{text}. {self.suggestion}" if self.suggestion else text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A `suggestion` that names what is most like a wrong name; empty if nothing is like it."""
    near = difflib.get_close_matches(name, [*known], n=1)
    return f"Did you mean `{near[0]}`?" if near else ""


def unknown_name(what: str, name: str, known: Sequence[str], more: Iterable[str] = ()) -> Fault:
    """Suggest the known name that is most like a wrong one, or list the known without `more`."""
    suggestion = did_you_mean(name, [*known, *more])
    expected = f"one of {', '.join(known)}" if known and not suggestion else ""
    return Fault(f"{what} `{name}`", expected=expected, suggestion=suggestion)


NEW_GENERATION = (
    "start a new generation: name an empty directory as `checkpoint`, and run with"
    " `--new-generation --reason ...`"
)
"""The remedy that is always available, as every message says it."""


class OnceflowError(Exception):
    """Base class: what failed, what was expected, what was found, and what happens now.

    Instances survive pickling: Spark moves them between processes. No secret may be passed in.

    Args:
        what: what failed, in one clause.
        subject: the thing it failed on (a batch, a topic, a transactional id).
        expected: what should have been the case.
        found: what was the case.
        then: what happens now, or what the user should do.
    """

    exit_code: ClassVar[int] = 70
    is_permanent: ClassVar[bool] = False
    """Whether a restart would end the same way, so that none should be made automatically."""

    def __init__(
        self, what: str, *, subject: str = "", expected: str = "", found: str = "", then: str = ""
    ) -> None:
        self.what = what
        self.subject = subject
        self.expected = expected
        self.found = found
        self.then = then
        super().__init__(what)

    def __str__(self) -> str:
        text = f"{self.what}: {self.subject}" if self.subject else self.what
        if self.expected:
            text += f"; expected {self.expected}"
        if self.found:
            text += f"; found {self.found}"
        return f"{text}; {self.then}" if self.then else text

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self)._rebuild, (dict(self.__dict__),))  # noqa: SLF001  our own

    @classmethod
    def _rebuild(cls, fields: dict[str, object]) -> OnceflowError:
        error = cls.__new__(cls)
        Exception.__init__(error, fields["what"])
        error.__dict__.update(fields)
        return error


class ConfigError(OnceflowError):
    """The service refuses to start. Nothing was started and nothing was written.

    Args:
        what: the summary line.
        faults: every fault that was found, not only the first.
    """

    exit_code = 2
    is_permanent = True

    def __init__(
        self,
        what: str,
        *,
        faults: tuple[Fault, ...] = (),
        subject: str = "",
        expected: str = "",
        found: str = "",
        then: str = "",
    ) -> None:
        super().__init__(what, subject=subject, expected=expected, found=found, then=then)
        self.faults = faults

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  - {fault}" for fault in self.faults)])


class RetriableError(OnceflowError):
    """The same call may be made again inside the same Deadline; nothing was decided."""

    exit_code = 3


class DeadlineError(OnceflowError):
    """The time given was used up before anything was sent."""

    exit_code = 3


class AbortableError(OnceflowError):
    """This transaction must be aborted and its incarnation discarded; the batch may run again."""

    exit_code = 3


class FencedError(OnceflowError):
    """A newer instance owns the pipeline. Stop: write nothing, abort nothing."""

    exit_code = 4
    is_permanent = True

    @classmethod
    def by_newer_instance(cls, pipeline: str, run_id: str, found: str = "") -> FencedError:
        """Make the error of an instance that finds itself replaced."""
        return cls(
            "a newer instance owns this pipeline",
            subject=pipeline,
            expected=f"owner with run_id {run_id}",
            found=found,
            then="stopping; nothing further is written",
        )


class OutcomeUnknownError(OnceflowError):
    """A commit was sent and its answer did not arrive. Only the ledger knows what happened."""

    exit_code = 5


class RecordError(OnceflowError):
    """One record cannot be read or written. The batch that holds it was not committed."""

    exit_code = 6
    is_permanent = True


class LineageError(OnceflowError):
    """The checkpoint does not belong to this ledger. Nothing was written."""

    exit_code = 7
    is_permanent = True


class CorruptionError(OnceflowError):
    """Two durable records contradict each other. Nothing was written; the evidence is kept."""

    exit_code = 7
    is_permanent = True


class InvariantError(OnceflowError):
    """A bug in Onceflow. Crash instead of continuing."""

    exit_code = 70


def require(condition: bool, what: str, *, subject: str = "", found: str = "") -> None:
    """Check an invariant that holds unless this product has a bug; kept under `python -O`.

    Raises:
        InvariantError: `condition` is false.
    """
    if not condition:
        then = "this is a bug in Onceflow; stopping"
        raise InvariantError(what, subject=subject, found=found, then=then)


def exit_code_of(error: BaseException | None) -> int:
    """The exit code of a process that ends with this error; None is a good end."""
    if error is None:
        return 0
    return error.exit_code if isinstance(error, OnceflowError) else InvariantError.exit_code
