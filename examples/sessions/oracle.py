"""Writes expected/user-sessions.jsonl in plain Python: no Spark, nothing of Onceflow."""

import json
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path

GAP = timedelta(minutes=5)
LATENESS = timedelta(seconds=30)
Action = tuple[str, datetime, str]


def expected(data: Path) -> dict[str, list[dict[str, object]]]:
    actions: list[Action] = []
    for line in (data / "actions.jsonl").read_text().splitlines():
        fields = json.loads(line)
        actions.append((fields["user"], datetime.fromisoformat(fields["at"]), fields["action"]))
    newest = max(at for _, at, _ in actions)
    rows = []
    for user, own in groupby(sorted(actions), key=itemgetter(0)):
        for session in sessions(list(own)):
            end = session[-1][1] + GAP
            if end <= newest - LATENESS:
                rows.append(
                    {
                        "user": user,
                        "session_start": shown(session[0][1]),
                        "session_end": shown(end),
                        "actions": len(session),
                        "purchases": sum(action == "buy" for _, _, action in session),
                    }
                )
    return {"user-sessions": rows}


def sessions(actions: list[Action]) -> list[list[Action]]:
    """Cut one user's actions, in order of time, at every pause of five minutes or more."""
    found: list[list[Action]] = []
    for action in actions:
        if found and action[1] < found[-1][-1][1] + GAP:
            found[-1].append(action)
        else:
            found.append([action])
    return found


def shown(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def main(data: Path, folder: Path) -> None:
    for topic, rows in expected(data).items():
        (folder / f"{topic}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(__file__).parent / "data", Path(__file__).parent / "expected")
