"""`onceflow dev chaos`: a proxy before real brokers, by the rules of a file."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceflow.cli.shared.options import BootstrapServers, ConfigFile, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat, print_json

if TYPE_CHECKING:
    from onceflow.devkit.chaos import ChaosProxy
    from onceflow.settings import Settings

RulesPath = Annotated[Path, typer.Argument(metavar="RULES.yaml", help="The faults to inject.")]


def chaos(
    rules: RulesPath,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Run a proxy that injects the faults in RULES.yaml.

    It stands between clients and the brokers. Prints its address for clients, and runs until
    Ctrl-C. Then prints how often each rule acted.
    """
    from onceflow.devkit.chaos import ChaosProxy
    from onceflow.devkit.chaos.rules import load_rules
    from onceflow.serve.drain import drain_on_signals

    armed = load_rules(rules)
    settings = settings_of(bootstrap_servers, config)
    _check_plaintext(settings)
    ended = threading.Event()
    with ChaosProxy(settings.bootstrap_servers, armed) as proxy, drain_on_signals(ended.set):
        typer.echo(f"export ONCEFLOW_BOOTSTRAP_SERVERS={proxy.bootstrap_servers}")
        ended.wait()
    _print(proxy, output)


def _check_plaintext(settings: Settings) -> None:
    from onceflow.errors import ConfigError

    if settings.tls is not None or settings.sasl is not None:
        raise ConfigError(
            "the proxy cannot read encrypted or authenticated traffic",
            expected="brokers without TLS and SASL",
            found="settings with " + ("`tls`" if settings.tls is not None else "`sasl`"),
        )


def _print(proxy: ChaosProxy, output: ResultFormat) -> None:
    rows: list[dict[str, Any]] = [
        {
            "name": running.rule.name,
            "api": running.rule.api,
            "on": running.rule.on,
            "action": running.rule.action,
            "fired": running.fired,
        }
        for running in proxy.rules
    ]
    if output is ResultFormat.JSON:
        print_json({"rules": rows, **vars(proxy.counts)})
        return
    from rich.table import Table

    from onceflow.cli.shared.terminal import Terminal

    table = Table(*rows[0])
    for row in rows:
        table.add_row(*("any" if value is None else str(value) for value in row.values()))
    Terminal().print(table)
