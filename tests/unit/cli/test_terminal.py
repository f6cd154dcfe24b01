"""A terminal obeys no text: records, names and errors with escape sequences in them."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Column, Table
from rich.text import Text

from onceflow.cli.shared.report import open_fleet_report, open_report
from onceflow.cli.shared.terminal import Terminal, guard_streams
from onceflow.texts import on_one_line, visible
from tests.support.clock import ManualClock
from tests.support.pipelines import pipeline_text

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\r[/][link=https://evil.example]x[/link]"
HARMFUL = ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\u202e", "\x1b]8;")


def harmful(text: str) -> list[str]:
    return [mark for mark in HARMFUL if mark in text]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, \u00e4\u00f6 \U0001f600 \u65e5\u672c", None),
        ("two\nlines\tand a tab", None),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b2J", "\\x9b2J"),
        ("a\rb", "a\\rb"),
        ("\u202eevil", "\\u202eevil"),
        ("\udcff", "\\udcff"),
        ("\x00", "\\x00"),
    ],
)
def test_control_characters_are_shown(text: str, shown: str | None) -> None:
    assert visible(text) == (text if shown is None else shown)
    assert on_one_line(f"{text}\n\t").endswith("\\n\\t")


def in_a_terminal(*arguments: str) -> str:
    """Both streams of a command on a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "onceflow.cli", *arguments]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL):
        os.close(theirs)
        written = b""
        try:
            while some := os.read(ours, 65536):
                written += some
        except OSError:  # how a terminal says that its last writer has gone
            pass
        finally:
            os.close(ours)
    return written.decode()


def test_errors_of_a_command_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    """The name of a file that does not exist, and keys of one that does."""
    name = f"{HOSTILE.replace('/', '')}.yaml"
    said = in_a_terminal("validate", "--file-only", str(tmp_path / name))
    assert "gnp.exe" in said
    assert harmful(said) == []
    hostile = json.dumps(HOSTILE)
    (tmp_path / "pipeline.yaml").write_text(f"{pipeline_text()}\n{hostile}: 1\n")
    said = in_a_terminal("validate", "--file-only", str(tmp_path / "pipeline.yaml"))
    assert "\\x1b]0;owned" in said
    assert harmful(said) == []


def test_tables_take_neither_markup_nor_control_characters() -> None:
    # Escapes are longer than what rich measured.
    table = Table("reason", Column("what", min_width=100))
    table.add_row(HOSTILE, Text(HOSTILE))
    stream = io.StringIO()
    console = Terminal(file=stream, force_terminal=True, width=300, highlight=False)
    console.print(table)
    console.print(HOSTILE)
    console.print(Text.assemble((HOSTILE, "bold red"), "!"))
    said = stream.getvalue()
    assert said.count("[link=") == 4
    assert harmful(said) == []


class TerminalStream(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_live_panels_send_their_own_colours_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = TerminalStream()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", TerminalStream())
    guard_streams()
    with open_report(ManualClock()) as report:
        report("batch", batch_id=1)
        report("warning", text=HOSTILE)
    with open_fleet_report(ManualClock()) as report_of:
        report_of("views")("warning", text=HOSTILE)
    said = stream.getvalue()
    assert "\\x1b[2J" in said
    assert harmful(said) == []
    assert "\x1b[2m" in said
    assert "\\x1b[2m" not in said
    assert "\\x1b[?25" not in said


def test_before_its_first_news_a_run_shows_that_it_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with open_report(ManualClock()):
        pass
    said = capsys.readouterr().out
    assert "starting" in said
    assert "records/s" not in said


def test_the_audit_is_kept_where_a_panel_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output is a terminal, standard error a file."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with open_fleet_report(ManualClock()) as report_of:
        report_of("")("audit", what="order", who="bob", path=f"/v1/{HOSTILE}")
        report_of("views")("running")
    (line,) = capsys.readouterr().err.splitlines()
    assert harmful(line) == []
    told = json.loads(line)
    assert (told["event"], told["what"], told["who"]) == ("audit", "order", "bob")
