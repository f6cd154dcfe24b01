"""Writes data/readings.jsonl: six devices, one reading every 20 s, up to 90 s out of order."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

FIRST = datetime(2026, 11, 1, 6, 0, tzinfo=UTC)
DEVICES = 6
ROUNDS = 50
PERIOD_S = 20


def readings() -> list[dict[str, object]]:
    random = Random(2)
    sent = []
    for number in range(ROUNDS):
        for device in range(DEVICES):
            at = FIRST + timedelta(seconds=PERIOD_S * number, milliseconds=37 * device)
            delay_s = random.choice([0, 0, 0, 1, 5, 30, 90])
            millicelsius = 20_000 + 500 * device + random.randrange(-4_000, 4_000)
            sent.append((at + timedelta(seconds=delay_s), device, millicelsius, at))
    return [
        {
            "device": f"device-{device}",
            "millicelsius": millicelsius,
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        for _, device, millicelsius, at in sorted(sent)
    ]


def main(folder: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in readings())
    (folder / "readings.jsonl").write_text(lines)


if __name__ == "__main__":
    main(Path(__file__).parent / "data")
