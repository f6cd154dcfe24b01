"""Plain English: words and turns of phrase that are refused, each with what to write instead.

Looks at documents, docstrings, comments and string literals. To see the hits of one folder:

    ONCEFLOW_TEST_WORDS=service/onceflow/cli .venv/bin/pytest tests/unit/repository/test_words.py
"""

from __future__ import annotations

import ast
import os
import re
import tokenize
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("service", "connectors", "tests", "bench", "examples", "docs", "docker", "deploy", ".ci")
SUFFIXES = {".py", ".md", ".yaml", ".yml", ".tpl", ".txt", ".html", ".js", ".java", ".sh"}
GENERATED = (
    "tests/deploy/golden/",
    "tests/integration/recorded/",
)

INSTEAD = {
    r"\banew\b|\bafresh\b": "again",
    r"\bmend(?:s|ed|ing)?\b": "fix, repair",
    r"\bwho(?:so)?ever\b": "anyone who; better: the user, the operator, the caller",
    r"\bsomebody\b": "name it: a user, another process",
    r"\bnobody\b": "no one; better name it: no process, no reader",
    r"\bbeside\b": "next to, with, besides",
    r"(?<!\bis\s)(?<!\bare\s)(?<!\bwas\s)(?<!\bfar\s)(?<!fall\s)(?<!falls\s)(?<!lag\s)(?<!lags\s)"
    r"(?<!further\s)(?<!left\s)(?<!more\s)(?<!leave\s)(?<!leaves\s)"
    r"\bbehind (?:the|an?|it|its|this|that|which|what|them)\b"
    r"(?! (?:\w+ )?(?:proxy|ingress|balancer))": "after, beyond",
    r"\botherwise than\b|\bcomput\w+ otherwise\b": "differently",
    r"(?<=[.;:]\s)(?-i:Of) (?!course\b)": "do not begin a sentence with 'Of'",
    r"\b(?:after|with|for|at most|in|of|than|into|by) so many\b": "this many",
    r"\b(?:for|after|than) so long\b": "this long",
    r"(?<![Tt]here\s)(?<![Hh]ere\s)\b(?:is|was|are|were) no"
    r" (?!longer\b|more\b|less\b|other\b|different\b|better\b|worse\b)[a-z]+": "is not a",
    r"\b(?:is|are|was|were|be) told\b"
    r"(?! (?:to|that|about|apart|by|which|what)\b)": "reported, named, shown",
    r"\btells? of\b": "report, mention",
    r"\b(?:lies?|lying) (?:in|on|at|there|where|beside|under)\b": "is",
    r"\bstands? (?:in|on|at|there|here|beside|under|behind|before)\b": "is",
    r", for (?:it|they|there|we|nothing|nobody)\b(?! (?:to|and|or)\b)": "because",
    r", for (?:the|an?|its|that|this|these|those) \w+"
    r" (?:is|are|was|has|had|would|can|cannot|may|must)\b": "because",
    r"\bwithout a word\b": "silently",
    r"\bin vain\b": "without success",
    r"\bof (?:ours|theirs)\b": "our, their",
    r"\bof the past\b": "earlier",
    r"\bfor ever\b": "forever",
    r"\bhinder(?:s|ed)?\b": "prevent",
    r"\bin the place of\b": "instead of",
    r"\b(?:lest|albeit|thereof|therein|wherein|whereby|hitherto)\b": "a plain word",
}

FIRST_WORDS = {
    "What": "begin with a verb or the thing itself",
    "Of": "begin with a verb or the thing itself",
    "That": "begin with a verb or the thing itself",
    "See": "no docstring at all: the protocol or base class has one",
}

# A phrase may go on in the next line, the next literal or the next comment.
_BETWEEN_WORDS = r"""[\s"'#*]+"""
_PATTERNS = [
    (re.compile(old.replace(" ", _BETWEEN_WORDS), re.IGNORECASE), new)
    for old, new in INSTEAD.items()
]
_PROSE_TOKENS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)}


def files() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.md"))
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*")):
            path = str(file.relative_to(ROOT))
            if (
                file.suffix in SUFFIXES
                and not path.startswith(GENERATED)
                and file != Path(__file__)
            ):
                yield file


def prose(text: str, suffix: str) -> str:
    """Blank out what is not prose; every character keeps its place."""
    if suffix == ".py":
        return _prose_of_python(text)
    if suffix == ".md":
        return re.sub(r"^```.*?^```", lambda m: _blank(m[0]), text, flags=re.DOTALL | re.MULTILINE)
    return text


def _prose_of_python(text: str) -> str:
    lines = text.splitlines(keepends=True)
    kept = [_blank(line) for line in lines]
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type in _PROSE_TOKENS:
            for number in range(token.start[0], token.end[0] + 1):
                line = lines[number - 1]
                begin = token.start[1] if number == token.start[0] else 0
                end = token.end[1] if number == token.end[0] else len(line)
                old = kept[number - 1]
                kept[number - 1] = old[:begin] + line[begin:end] + old[end:]
    return "".join(kept)


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def hits(text: str, suffix: str) -> Iterator[tuple[int, str, str]]:
    """The line, the words and what to write instead, for each hit in a file."""
    shown = prose(text, suffix)
    for pattern, instead in _PATTERNS:
        for match in pattern.finditer(shown):
            found = re.sub(_BETWEEN_WORDS, " ", match[0])
            yield shown.count("\n", 0, match.start()) + 1, found.strip(), instead
    if suffix == ".py":
        yield from _docstring_hits(ast.parse(text))


def _docstring_hits(module: ast.Module) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(module):
        match getattr(node, "body", None):
            case [ast.Expr(value=ast.Constant(value=str(text))) as first, *_]:
                yield from _first_word_hits(text, first.lineno)
            case _:
                pass


def _first_word_hits(docstring: str, line: int) -> Iterator[tuple[int, str, str]]:
    word, _, rest = docstring.strip().partition(" ")
    if word in FIRST_WORDS:
        yield line, f"{word} {rest[:30].strip()}", FIRST_WORDS[word]


def test_the_english_is_plain() -> None:
    asked = os.environ.get("ONCEFLOW_TEST_WORDS", "")
    found = [
        f"{path}:{line}: '{words}': {instead}"
        for file in files()
        if (path := str(file.relative_to(ROOT))).startswith(asked)
        for line, words, instead in sorted(hits(file.read_text(encoding="utf-8"), file.suffix))
    ]

    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""What it is."""\n', [(1, "What it is.")]),
        ('def f():\n    """Of the run."""\n', [(2, "Of the run.")]),
        (
            'x = "ask " "and mend\\n"\n# It is read behind\n# the fence.\n',
            [(1, "mend"), (2, "behind the")],
        ),
        ("anew = somebody + 1\n", []),
        ("x = 1  # done, for it had seen it\n", [(1, ", for it")]),
        ("# It is behind the others. It is no longer there. There is no way. Of course.\n", []),
        ("# It is no file. Of all, one.\n", [(1, "Of"), (1, "is no file")]),
    ],
)
def test_these_checks_see_what_they_look_for(text: str, found: list[tuple[int, str]]) -> None:
    assert sorted((line, words) for line, words, _ in hits(text, ".py")) == found


def test_code_in_documents_is_not_prose() -> None:
    text = "Do it anew.\n\n```sh\nbegin anew\n```\n\nAnd `mend` it.\n"

    assert [(line, words) for line, words, _ in hits(text, ".md")] == [(1, "anew"), (7, "mend")]
