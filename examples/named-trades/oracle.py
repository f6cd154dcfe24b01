"""Writes expected/named-trades.jsonl in plain Python: no Spark, nothing of Onceflow."""

import csv
import json
from pathlib import Path


def main(data: Path, folder: Path) -> None:
    with (data.parent / "names.csv").open() as file:
        names = {row["symbol"]: row["name"] for row in csv.DictReader(file)}
    lines = []
    for line in (data / "trades.jsonl").read_text().splitlines():
        trade = json.loads(line)
        lines.append(json.dumps({**trade, "name": names.get(trade["symbol"])}) + "\n")
    (folder / "named-trades.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main(Path(__file__).parent / "data", Path(__file__).parent / "expected")
