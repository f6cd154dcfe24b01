"""Writes expected/device-temperatures.jsonl in plain Python: no Spark, nothing of Onceflow."""

import json
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

LENGTH = timedelta(minutes=5)
STEP = timedelta(minutes=1)
LATENESS = timedelta(minutes=2)


def expected(data: Path) -> dict[str, list[dict[str, object]]]:
    readings = [json.loads(line) for line in (data / "readings.jsonl").read_text().splitlines()]
    groups: dict[tuple[str, datetime], list[int]] = {}
    newest = max(datetime.fromisoformat(reading["at"]) for reading in readings)
    for reading in readings:
        at = datetime.fromisoformat(reading["at"])
        # The windows that hold an instant begin in the five minutes up to it.
        start = at.replace(second=0, microsecond=0)
        while start > at - LENGTH:
            groups.setdefault((reading["device"], start), []).append(reading["millicelsius"])
            start -= STEP
    rows = [
        {
            "device": device,
            "window_start": shown(start),
            "window_end": shown(start + LENGTH),
            "readings": len(values),
            "mean_millicelsius": mean(values),
            "min_millicelsius": min(values),
            "max_millicelsius": max(values),
        }
        for (device, start), values in sorted(groups.items())
        if start + LENGTH <= newest - LATENESS
    ]
    return {"device-temperatures": rows}


def mean(values: list[int]) -> float:
    exact = Decimal(sum(values)) / len(values)
    return float(exact.quantize(Decimal("0.001"), ROUND_HALF_UP))


def shown(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def main(data: Path, folder: Path) -> None:
    for topic, rows in expected(data).items():
        (folder / f"{topic}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(__file__).parent / "data", Path(__file__).parent / "expected")
