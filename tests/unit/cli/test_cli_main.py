"""The entry point: quick help, one message for each error, and the exit code of its class."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn

import pytest
import typer

from onceflow.cli import main as entry
from onceflow.errors import (
    ConfigError,
    CorruptionError,
    Fault,
    FencedError,
    InvariantError,
    OnceflowError,
)

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the entry point with one command that raises `error`."""

    def run(error: BaseException) -> tuple[int, str]:
        app = typer.Typer(pretty_exceptions_enable=False)

        @app.command()
        def fail() -> NoReturn:
            raise error

        monkeypatch.setattr(entry, "build_app", lambda: app)
        monkeypatch.setattr(sys, "argv", ["onceflow"])
        with pytest.raises(SystemExit) as ended:
            entry.main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return run


def test_a_package_that_is_missing_is_named_with_what_installs_it(run: Run) -> None:
    code, said = run(ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow"))
    assert code == 2
    assert (
        said == "onceflow: a package is missing: pyarrow; Run `pip install 'onceflow[service]'`\n"
    )
    code, said = run(ModuleNotFoundError("No module named 'onceflow.x'", name="onceflow.x"))
    assert code == 70


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ConfigError("bad"), 2, "bad"),
        (
            ConfigError("bad", faults=(Fault("a"), Fault("b", line=3))),
            2,
            "bad\n  - a\n  - line 3: b",
        ),
        (FencedError("newer instance"), 4, "newer instance"),
        (CorruptionError("two truths"), 7, "two truths"),
        (InvariantError("our bug"), 70, "our bug"),
    ],
)
def test_an_error_of_ours_is_one_message_and_its_code(
    run: Run, error: OnceflowError, code: int, message: str
) -> None:
    assert run(error) == (code, f"onceflow: {message}\n")


def test_an_unexpected_error_says_where_it_came_from(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(entry.TRACEBACK_VARIABLE, raising=False)

    code, message = run(ValueError("odd"))

    assert code == 70
    assert message.startswith("onceflow: unexpected ValueError: odd\n  at ")
    assert "test_cli_main.py:" in message
    assert "Traceback" not in message


def test_an_error_deep_in_a_library_also_says_what_of_ours_called_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(entry.TRACEBACK_VARIABLE, raising=False)
    with pytest.raises(ValueError, match="double quotes") as caught:
        json.loads("{")

    _, message = run(caught.value)

    assert "main.py:" in message
    assert "decoder.py:" in message


def test_the_whole_traceback_may_be_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(entry.TRACEBACK_VARIABLE, "1")

    _, message = run(ValueError("odd"))

    assert message.startswith("Traceback (most recent call last)")


def test_an_interrupt_is_no_bug(run: Run) -> None:
    code, message = run(KeyboardInterrupt())

    assert code == 130  # as shells have it
    assert "bug" not in message


def test_an_unknown_command_is_refused_like_a_wrong_setting() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "onceflow.cli", "nonsense"], check=False, capture_output=True
    )

    assert ended.returncode == ConfigError.exit_code
    assert b"nonsense" in ended.stderr


def modules_after(*arguments: str) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Run a command, and find which heavy modules it has loaded."""
    heavy = {"pyspark", "pyarrow", "confluent_kafka", "pydantic", "yaml"}
    program = (
        f"import sys; sys.argv = ['onceflow', *{arguments}]\n"
        "from onceflow.cli import main\n"
        "try: main.main()\n"
        f"finally: sys.stderr.write(' '.join({heavy!r} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    return ended, set(ended.stderr.split())


def test_help_lists_every_command_and_loads_nothing_heavy() -> None:
    ended, loaded = modules_after("--help")
    assert (ended.returncode, loaded) == (0, set())
    names = [module.rpartition(".")[2].replace("_", "-") for module in entry.COMMANDS]
    assert all(f"  {name}" in ended.stdout for name in names)


def test_a_faulty_file_is_told_without_loading_spark() -> None:
    ended, loaded = modules_after("validate", "/dev/null")
    assert ended.returncode == 2
    assert loaded <= {"pydantic", "yaml"}
