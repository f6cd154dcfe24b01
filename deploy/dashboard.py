#!/usr/bin/env python3
"""Writes the Grafana dashboard of the chart: `make chart`. Each panel is one line below."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "helm" / "onceflow" / "files" / "dashboard.json"
BY = '{pipeline=~"$pipeline"}'
OF = '{KIND=~"$KIND"}'
AT = '{gateway=~"$gateway"}'
WIDTH, HEIGHT, COLUMNS = 8, 7, 3
Query = tuple[str, str]
"""An expression, in which `BY` means the chosen pipelines, `OF` the chosen files of a kind and `AT`
the chosen gateways, and the name of its lines."""
Panel = tuple[str, str, Sequence[Query]]
"""Title, unit by Grafana's names, queries."""

CARRIED: Sequence[Panel] = (
    (
        "State, and the other side",
        "short",
        (
            ("onceflow_KIND_state OF == 1", "{{KIND}}: {{state}}"),
            ("onceflow_KIND_desired_running OF", "{{KIND}} desired"),
            ("onceflow_KIND_target_up OF", "{{KIND}} answered last"),
        ),
    ),
    (
        "Failures and restarts an hour",
        "short",
        (
            ("increase(onceflow_KIND_failures_total OF[1h])", "{{KIND}} {{error}}"),
            ("increase(onceflow_KIND_restarts_total OF[1h])", "{{KIND}} restarts"),
            ("increase(onceflow_KIND_tries_failed_total OF[1h])", "{{KIND}} tries"),
        ),
    ),
    (
        "Done, and not",
        "cps",
        (
            ("rate(onceflow_KIND_records_total OF[5m])", "{{KIND}} done"),
            ("rate(onceflow_KIND_rejected_total OF[5m])", "{{KIND}} rejected"),
            ("rate(onceflow_KIND_dropped_total OF[5m])", "{{KIND}} dropped"),
            ("rate(onceflow_KIND_repeats_total OF[5m])", "{{KIND}} repeats"),
        ),
    ),
    (
        "Records that wait",
        "short",
        (
            (
                "sum by (KIND) (onceflow_KIND_lag_records OF)",
                "{{KIND}}",
            ),
        ),
    ),
    (
        "Oldest that waits, and time until it is deleted",
        "s",
        (
            ("onceflow_KIND_lag_seconds OF", "{{KIND}} waits"),
            ("onceflow_KIND_retention_left_seconds OF", "{{KIND}} left"),
        ),
    ),
    (
        "Time of a batch, and batches a second",
        "s",
        (
            (
                (
                    "rate(onceflow_KIND_batch_duration_seconds_sum OF[5m])"
                    " / rate(onceflow_KIND_batch_duration_seconds_count OF[5m])"
                ),
                "{{KIND}} mean",
            ),
            (
                (
                    "histogram_quantile(0.99, sum by (KIND, le)"
                    " (rate(onceflow_KIND_batch_duration_seconds_bucket OF[5m])))"
                ),
                "{{KIND}} 99th percentile",
            ),
            ("rate(onceflow_KIND_batches_total OF[5m])", "{{KIND}} batches"),
        ),
    ),
)
"""Of deliveries and of enrichments, which `KIND` stands for."""
ASKED: Sequence[Panel] = (
    (
        "Questions, and answers that were there",
        "cps",
        (
            ("rate(onceflow_KIND_asked_total OF[5m])", "{{KIND}} asked"),
            ("rate(onceflow_KIND_cached_total OF[5m])", "{{KIND}} cached"),
            ("rate(onceflow_KIND_ask_failed_total OF[5m])", "{{KIND}} failed"),
        ),
    ),
    (
        "Time of an answer",
        "s",
        (
            (
                (
                    "rate(onceflow_KIND_ask_seconds_total OF[5m])"
                    " / rate(onceflow_KIND_asked_total OF[5m])"
                ),
                "{{KIND}} mean",
            ),
        ),
    ),
    (
        "Questions at the same time",
        "short",
        (("onceflow_KIND_in_flight OF", "{{KIND}}"),),
    ),
)


def _of(kind: str, panels: Sequence[Panel]) -> Sequence[Panel]:
    return [
        (
            title,
            unit,
            [
                (text.replace(" OF", OF).replace("KIND", kind), n.replace("KIND", kind))
                for text, n in queries
            ],
        )
        for title, unit, queries in panels
    ]


ROWS: Sequence[tuple[str, Sequence[Panel]]] = (
    (
        "State",
        (
            ("State", "short", (("onceflow_pipeline_state BY == 1", "{{pipeline}}: {{state}}"),)),
            ("Desired", "short", (("onceflow_pipeline_desired_running BY", "{{pipeline}}"),)),
            (
                "Restarts, failures, take-overs an hour",
                "short",
                (
                    ("increase(onceflow_restarts_total BY[1h])", "{{pipeline}} restarts"),
                    ("increase(onceflow_failures_total BY[1h])", "{{pipeline}} {{error}}"),
                    ("increase(onceflow_fenced_total BY[1h])", "{{pipeline}} fenced"),
                ),
            ),
            (
                "Time since the last commit",
                "s",
                (("time() - onceflow_batch_last_success_timestamp_seconds BY", "{{pipeline}}"),),
            ),
            ("Newest batch", "short", (("onceflow_batch_last BY", "{{pipeline}}"),)),
            (
                "Generation and fencing token",
                "short",
                (
                    ("onceflow_generation BY", "{{pipeline}} generation"),
                    ("onceflow_fencing_token BY", "{{pipeline}} token"),
                ),
            ),
        ),
    ),
    (
        "Records",
        (
            (
                "In and out",
                "cps",
                (
                    ("rate(onceflow_records_read_total BY[5m])", "{{pipeline}} read"),
                    ("rate(onceflow_records_written_total BY[5m])", "{{pipeline}} written"),
                ),
            ),
            (
                "Lag",
                "short",
                (
                    (
                        "sum by (pipeline, topic) (onceflow_source_lag_records BY)",
                        "{{pipeline}} {{topic}}",
                    ),
                ),
            ),
            (
                "Not used",
                "cps",
                (
                    ("rate(onceflow_records_late_total BY[5m])", "{{pipeline}} late"),
                    ("rate(onceflow_records_rejected_total BY[5m])", "{{pipeline}} rejected"),
                    ("rate(onceflow_records_duplicates_total BY[5m])", "{{pipeline}} duplicates"),
                    ("rate(onceflow_records_refused_total BY[5m])", "{{pipeline}} refused"),
                    ("rate(onceflow_records_diverged_total BY[5m])", "{{pipeline}} diverged"),
                ),
            ),
            (
                "Event time lag",
                "s",
                (
                    (
                        "time() - onceflow_event_watermark_timestamp_seconds BY",
                        "{{pipeline}} event watermark",
                    ),
                    (
                        "time() - onceflow_newest_event_timestamp_seconds BY",
                        "{{pipeline}} newest event",
                    ),
                ),
            ),
            (
                "Newest sequence",
                "short",
                (("onceflow_sequence_last BY", "{{pipeline}} {{topic}}-{{partition}}"),),
            ),
            (
                "Unread input deleted in",
                "s",
                (("onceflow_retention_left_seconds BY", "{{pipeline}}"),),
            ),
        ),
    ),
    (
        "Batches",
        (
            (
                "Batches",
                "cps",
                (("rate(onceflow_batches_total BY[5m])", "{{pipeline}} {{outcome}}"),),
            ),
            (
                "Time of a batch",
                "s",
                (
                    (
                        (
                            "rate(onceflow_batch_duration_seconds_sum BY[5m])"
                            " / rate(onceflow_batch_duration_seconds_count BY[5m])"
                        ),
                        "{{pipeline}} {{phase}}",
                    ),
                ),
            ),
            (
                "99th percentile of a batch",
                "s",
                (
                    (
                        (
                            "histogram_quantile(0.99, sum by (pipeline, phase, le)"
                            " (rate(onceflow_batch_duration_seconds_bucket BY[5m])))"
                        ),
                        "{{pipeline}} {{phase}}",
                    ),
                ),
            ),
            (
                "Transactions",
                "cps",
                (("rate(onceflow_transactions_total BY[5m])", "{{pipeline}} {{outcome}}"),),
            ),
            (
                "Time of a commit",
                "s",
                (
                    (
                        (
                            "rate(onceflow_transaction_commit_seconds_sum BY[5m])"
                            " / rate(onceflow_transaction_commit_seconds_count BY[5m])"
                        ),
                        "{{pipeline}} mean",
                    ),
                    (
                        (
                            "histogram_quantile(0.99, sum by (pipeline, le)"
                            " (rate(onceflow_transaction_commit_seconds_bucket BY[5m])))"
                        ),
                        "{{pipeline}} 99th percentile",
                    ),
                ),
            ),
        ),
    ),
    (
        "State and disk",
        (
            ("Rows of state", "short", (("onceflow_state_rows BY", "{{pipeline}}"),)),
            ("Memory of state", "bytes", (("onceflow_state_bytes BY", "{{pipeline}}"),)),
            (
                "Free space for the checkpoint",
                "bytes",
                (("onceflow_checkpoint_free_bytes BY", "{{pipeline}}"),),
            ),
        ),
    ),
    ("Deliveries", _of("delivery", CARRIED)),
    ("Enrichments", _of("enrichment", (*CARRIED, *ASKED))),
    (
        "Gateways",
        (
            (
                "State, slots and their owners",
                "short",
                (
                    ("onceflow_gateway_state AT == 1", "{{gateway}}: {{state}}"),
                    ("onceflow_gateway_desired_running AT", "{{gateway}} desired"),
                    ("sum by (gateway) (onceflow_gateway_slots AT)", "{{gateway}} slots"),
                    ("max by (gateway) (onceflow_gateway_unowned_slots AT)", "{{gateway}} unowned"),
                ),
            ),
            (
                "Failures and restarts an hour",
                "short",
                (
                    ("increase(onceflow_gateway_failures_total AT[1h])", "{{gateway}} {{error}}"),
                    ("increase(onceflow_gateway_restarts_total AT[1h])", "{{gateway}} restarts"),
                ),
            ),
            (
                "Posts by status, and records",
                "cps",
                (
                    (
                        "sum by (gateway, status) (rate(onceflow_gateway_posts_total AT[5m]))",
                        "{{gateway}} {{status}}",
                    ),
                    (
                        "sum by (gateway) (rate(onceflow_gateway_records_total AT[5m]))",
                        "{{gateway}} records",
                    ),
                ),
            ),
            (
                "Time to answer",
                "s",
                (
                    (
                        (
                            "rate(onceflow_gateway_post_duration_seconds_sum AT[5m])"
                            " / rate(onceflow_gateway_post_duration_seconds_count AT[5m])"
                        ),
                        "{{gateway}} {{instance}} mean",
                    ),
                    (
                        (
                            "histogram_quantile(0.99, sum by (gateway, le)"
                            " (rate(onceflow_gateway_post_duration_seconds_bucket AT[5m])))"
                        ),
                        "{{gateway}} 99th percentile",
                    ),
                ),
            ),
            (
                "Remembered keys",
                "short",
                (("sum by (gateway) (onceflow_gateway_keys AT)", "{{gateway}}"),),
            ),
            (
                "Bodies that wait",
                "bytes",
                (("onceflow_gateway_in_flight_bytes AT", "{{gateway}} {{instance}}"),),
            ),
        ),
    ),
)


def panels() -> Iterator[dict[str, Any]]:
    """Every panel in its place."""
    top = number = 0
    for title, row in ROWS:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": WIDTH * COLUMNS, "h": 1},
        }
        top += 1
        for place, panel in enumerate(row):
            number += 1
            at = {"x": place % COLUMNS * WIDTH, "y": top + place // COLUMNS * HEIGHT}
            yield {"id": number, **_panel(panel), "gridPos": {**at, "w": WIDTH, "h": HEIGHT}}
        top += -(-len(row) // COLUMNS) * HEIGHT


def _panel(panel: Panel) -> dict[str, Any]:
    title, unit, queries = panel
    return {
        "type": "timeseries",
        "title": title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": _filled(text), "legendFormat": name}
            for place, (text, name) in enumerate(queries)
        ],
    }


def _filled(text: str) -> str:
    for short, chosen in ((" BY", BY), (" AT", AT)):
        text = text.replace(short, chosen)
    return text


def _choice(name: str, label: str, metric: str) -> dict[str, Any]:
    """A list at the top, of the values of a label."""
    return {
        "name": name,
        "type": "query",
        "label": label,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": f"label_values({metric}, {name})",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard() -> dict[str, Any]:
    """Build the dashboard as Grafana imports it."""
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}
    chosen = [
        _choice("pipeline", "Pipeline", "onceflow_pipeline_state"),
        _choice("delivery", "Delivery", "onceflow_delivery_state"),
        _choice("enrichment", "Enrichment", "onceflow_enrichment_state"),
        _choice("gateway", "Gateway", "onceflow_gateway_state"),
    ]
    return {
        "uid": "onceflow",
        "title": "Onceflow",
        "tags": ["onceflow", "kafka"],
        "schemaVersion": 39,
        "timezone": "utc",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source, *chosen]},
        "panels": [*panels()],
    }


def text() -> str:
    """The file's text."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
    sys.stdout.write(f"wrote {FILE.name}\n")
