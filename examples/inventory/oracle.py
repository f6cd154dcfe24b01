"""Writes expected/stock-levels.jsonl in plain Python: no Spark, nothing of Onceflow."""

import json
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

LATENESS = timedelta(seconds=30)


def expected(data: Path) -> dict[str, list[dict[str, object]]]:
    lines = (data / "movements.jsonl").read_text().splitlines()
    movements = [(datetime.fromisoformat(m["at"]), m) for m in map(json.loads, lines)]
    passed = max(at for at, _ in movements) - LATENESS
    there: Counter[str] = Counter()
    levels = []
    for at, movement in sorted(movements, key=lambda each: each[0]):
        item, quantity = movement["item"], movement["quantity"]
        if at <= passed and there[item] + quantity >= 0:
            there[item] += quantity
            levels.append({"item": item, "stock": there[item], "at": movement["at"]})
    return {"stock-levels": levels}


def main(data: Path, folder: Path) -> None:
    for topic, rows in expected(data).items():
        (folder / f"{topic}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(__file__).parent / "data", Path(__file__).parent / "expected")
