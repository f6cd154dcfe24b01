"""The rules that a pipeline file can break, under names for programs that do not change."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Rule(StrEnum):
    """Values of `Fault.rule` for a fault in a pipeline file."""

    UNREADABLE_FILE = "unreadable-file"
    MALFORMED_YAML = "malformed-yaml"
    MISSING_KEY = "missing-key"
    UNKNOWN_KEY = "unknown-key"
    WRONG_VALUE = "wrong-value"
    SOURCE_COLUMNS = "source-columns"
    EVENT_TIME = "event-time"
    IMPOSSIBLE_DELIVERY = "impossible-delivery"
    EPHEMERAL_CHECKPOINT = "ephemeral-checkpoint"
    INVALID_QUERY = "invalid-query"
    NOT_ALLOWED = "not-allowed"
    UNBOUNDED = "unbounded"
    SOURCE_USE = "source-use"
    NOT_STREAMABLE = "not-streamable"
    RESULT_COLUMNS = "result-columns"
    BROKEN_LAW = "broken-law"
    UNPROVEN_FUNCTION = "unproven-function"
    UNBOUNDED_STATE = "unbounded-state"
    UNUSED_WAIVER = "unused-waiver"
    ND_AGG = "ND-AGG"
    ND_CLOCK = "ND-CLOCK"
    ND_EFFECT = "ND-EFFECT"
    ND_ENV = "ND-ENV"
    ND_GLOBAL = "ND-GLOBAL"
    ND_LAYOUT = "ND-LAYOUT"
    ND_ORDER = "ND-ORDER"
    ND_RANDOM = "ND-RANDOM"
    ND_SOURCE = "ND-SOURCE"
    ND_STATE = "ND-STATE"


SUMMARIES: Mapping[Rule, str] = {
    Rule.UNREADABLE_FILE: "The file exists, can be read, and is UTF-8.",
    Rule.MALFORMED_YAML: "The file is YAML without anchors, tags, repeated or empty keys.",
    Rule.MISSING_KEY: "Every required key is there.",
    Rule.UNKNOWN_KEY: "Every key is one that pipeline files have.",
    Rule.WRONG_VALUE: "Every value is of its key's kind, and goes with the others.",
    Rule.SOURCE_COLUMNS: "A source's columns can be had from its records.",
    Rule.EVENT_TIME: "An event time is a TIMESTAMP of its source.",
    Rule.IMPOSSIBLE_DELIVERY: "Every source can keep what `delivery` promises.",
    Rule.EPHEMERAL_CHECKPOINT: "The checkpoint is where it outlives the process.",
    Rule.INVALID_QUERY: "Spark understands the query, or the function returns a DataFrame.",
    Rule.NOT_ALLOWED: "The query uses only what the allow list has: docs/security.md.",
    Rule.UNBOUNDED: "What the query makes of one row, and how long it searches, is bounded.",
    Rule.SOURCE_USE: "Each source is read once, and nothing else is read.",
    Rule.NOT_STREAMABLE: "The query can run on streams, as `emit` asks for.",
    Rule.RESULT_COLUMNS: "The result's columns can be written as the sink says.",
    Rule.BROKEN_LAW: "An aggregate gives the same, however its values are ordered and divided.",
    Rule.UNPROVEN_FUNCTION: "Functions are known to give the same result at every replay.",
    Rule.UNBOUNDED_STATE: "State is dropped once event time has passed it.",
    Rule.UNUSED_WAIVER: "A waiver is there for something that is found.",
    Rule.ND_AGG: "An aggregate gives the same result in whatever order its rows come.",
    Rule.ND_CLOCK: "No clock is read but Spark's, which is pinned for each batch.",
    Rule.ND_EFFECT: "Functions touch nothing outside of themselves: no file, network or thread.",
    Rule.ND_ENV: "Nothing is taken from the process or the machine that runs the query.",
    Rule.ND_GLOBAL: "Functions change nothing that outlives their call.",
    Rule.ND_LAYOUT: "Results do not depend on how rows are spread over files, tasks or processes.",
    Rule.ND_ORDER: "Results do not depend on the order of rows.",
    Rule.ND_RANDOM: "Nothing is random.",
    Rule.ND_SOURCE: "Nothing is read but the sources, which can be read again.",
    Rule.ND_STATE: "A processor keeps what it must remember in the state that Spark gives it.",
}
"""What holds where the rule is kept, in one sentence."""
