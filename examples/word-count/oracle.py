"""Writes expected/word-count.jsonl in plain Python: no Spark, nothing of Onceflow."""

import json
from collections import Counter
from pathlib import Path


def expected(data: Path) -> dict[str, list[dict[str, object]]]:
    lines = [json.loads(line)["line"] for line in (data / "lines.jsonl").read_text().splitlines()]
    words = Counter(word for line in lines for word in line.lower().strip(".").split(" "))
    return {"word-count": [{"word": word, "times": words[word]} for word in sorted(words)]}


def main(data: Path, folder: Path) -> None:
    for topic, rows in expected(data).items():
        (folder / f"{topic}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(__file__).parent / "data", Path(__file__).parent / "expected")
