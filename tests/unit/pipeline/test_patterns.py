"""Regular expressions for Java: none that some text makes it try forever."""

from __future__ import annotations

import pytest

from onceflow.pipeline.allow_list.patterns import UnsafePatternError, check_like, check_pattern

HONEST = (
    "",
    r"\d+",
    "^[a-z]+$",
    "^$",
    r"^\s*$",
    r"\s+",
    ",",
    r"\|",
    r"[,;]\s*",
    "a|b|c",
    "(a|b)*",
    "(foo|bar)+",
    "(ab)+",
    r"(\w+,)*x",
    "(?:/[^/]+)+",
    r"(?:[a-z]+\.)+com",
    r"(\d{1,3}\.){3}\d{1,3}",
    r"(\d{4})-(\d{2})-(\d{2})",
    r'^(\S+) (\S+) (\S+) \[([\w:/]+\s[+\-]\d{4})\] "(.+?)" (\d{3}) (\S+)',
    r"([a-zA-Z0-9._%+-]+)@([a-zA-Z0-9.-]+)\.[a-zA-Z]{2,}",
    r"https?://([^/]+)/.*",
    r"^(\+\d{1,2}\s)?\(?\d{3}\)?[\s.-]\d{3}[\s.-]\d{4}$",
    "key=(.*)",
    "<[^>]*>",
    "(?i)error",
    "(?<name>x+)y",
    "(?=a)b+",
    r"\p{L}+",
    "[^a-z0-9]+",
    "[]a]",
    "[^]]+",
    r"[\[\]]",
    ".*foo.*",
    "a{2,5}",
)
HOSTILE = (
    "(a+)+b",
    "(a*)*",
    "(.*)*x",
    "(a|aa)+",
    "(a|a)*",
    "(|a)*",
    "(a|ab|b)*c",
    "(a|[a-c])*d",
    "(?i)(a|A)*b",
    r"(.|\n)*x",
    r"(\d+|x)*",
    "(a?a)+",
    "(a?){30}",
    "(?:a?){40}a{40}",
    r"(\w+\s?)*$",
    r"(\s*,?\s*)*x",
    "(x+x+)+y",
    "(.*a){20}",
    "(?:.+?)+?;",
    "(?>a+)+",
    "((ab)*)*c",
    "((a{1,50}){1,50}){1,50}",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    # Of an earlier version of these rules, found by random expressions.
    r"(?:(?:(?:.)*?){1,3}(.|(?:b)+)a){1,3}d",
    r"(?:(?:(a|(?:a){0,30})){2}){1,3}d",
    ".*.*.*.*=",
    "(a+)(a+)(a+)(a+)(a+)b",
    r"(a)\1",
    r"(?<n>a)\k<n>",
)
UNKNOWN = ("a**", r"\Qa\E", "[a&&[b]]", "(?x)a b", "(", ")", "[a", "*a", "a{", "[z-a", "x" * 1000)


@pytest.mark.parametrize("pattern", HONEST)
def test_what_ends_soon_is_let_in(pattern: str) -> None:
    check_pattern(pattern)


@pytest.mark.parametrize("pattern", [*HOSTILE, *UNKNOWN, "(" * 30 + "a" + ")" * 30])
def test_what_may_not_end_or_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(UnsafePatternError):
        check_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "is_safe"), [("%a%b%", True), ("a%b%c%d", True), ("%a%a%a%a%a%", False)]
)
def test_a_like_pattern_has_few_wildcards(pattern: str, is_safe: bool) -> None:
    if is_safe:
        check_like(pattern)
    else:
        with pytest.raises(UnsafePatternError):
            check_like(pattern)
