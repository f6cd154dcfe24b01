"""Writes data/lines.jsonl: lines of words, a second apart."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

FIRST = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
LINES = 60
WORDS = ["a", "batch", "counts", "Every", "every", "Kafka", "once", "record", "twice", "word"]


def lines() -> list[dict[str, object]]:
    random = Random(1)
    return [
        {
            "line": f"{' '.join(random.choices(WORDS, k=random.randrange(1, 9)))}.",
            "at": (FIRST + timedelta(seconds=n)).isoformat().replace("+00:00", "Z"),
        }
        for n in range(LINES)
    ]


def main(folder: Path) -> None:
    (folder / "lines.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines()))


if __name__ == "__main__":
    main(Path(__file__).parent / "data")
