"""Writes expected/page-views.jsonl in plain Python: no Spark, nothing of Onceflow."""

import json
from datetime import datetime, timedelta
from pathlib import Path

MINUTE = timedelta(minutes=1)
LATENESS = timedelta(seconds=10)


def expected(data: Path) -> dict[str, list[dict[str, object]]]:
    clicks = [json.loads(line) for line in (data / "clicks.jsonl").read_text().splitlines()]
    views: dict[tuple[str, datetime], list[int]] = {}
    newest = max(datetime.fromisoformat(click["at"]) for click in clicks)
    for click in clicks:
        start = datetime.fromisoformat(click["at"]).replace(second=0, microsecond=0)
        views.setdefault((click["page"], start), []).append(click["ms"])
    rows = [
        {
            "page": page,
            "window_start": shown(start),
            "window_end": shown(start + MINUTE),
            "views": len(times),
            "total_ms": sum(times),
        }
        for (page, start), times in sorted(views.items())
        if start + MINUTE <= newest - LATENESS
    ]
    return {"page-views": rows}


def shown(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def main(data: Path, folder: Path) -> None:
    for topic, rows in expected(data).items():
        (folder / f"{topic}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(__file__).parent / "data", Path(__file__).parent / "expected")
