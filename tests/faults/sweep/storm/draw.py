"""Which fault comes when: drawn from a seed, the same again for the same seed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

DRIVER = "driver"
BROKER = "broker"
NETWORK = "network"
NOTHING = ""
"""What a fault occupies; two faults of one kind of thing never overlap, others do."""

OUTPUT_LEADER = "leader of the output"
TRANSACTIONS = "transaction coordinator"
GROUPS = "group coordinator"
CONTROLLER = "controller"
ROLES = (OUTPUT_LEADER, TRANSACTIONS, GROUPS, CONTROLLER)

SPREAD = 0.7
"""A gap is the average, less or more by at most this share of it."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Args:
        name: as `--only` takes it.
        occupies: what it needs for itself while it lasts.
        hold_s: shortest and longest time before it is undone; (0, 0) if there is nothing to undo.
        weight: how often it is drawn, compared with the others.
    """

    name: str
    occupies: str
    hold_s: tuple[float, float] = (0.0, 0.0)
    weight: int = 2


TRANSACTION_TIMEOUT_S = 15.0
"""Of the service in a storm: short, so that many transactions run into it."""

KINDS = (
    Kind("kill-driver", DRIVER, weight=6),
    Kind("freeze-driver", DRIVER, (1.0, 8.0)),
    Kind("freeze-driver-long", DRIVER, (TRANSACTION_TIMEOUT_S + 3, TRANSACTION_TIMEOUT_S + 10)),
    Kind("zombie-driver", DRIVER, weight=3),
    Kind("second-driver", DRIVER, weight=3),
    Kind("drain-driver", DRIVER),
    Kind("kill-broker", BROKER, (2.0, 12.0), weight=4),
    Kind("stop-broker", BROKER, (2.0, 8.0)),
    Kind("freeze-broker", BROKER, (3.0, 15.0), weight=3),
    Kind("move-leaders", BROKER, weight=3),
    Kind("hijack-ids", NOTHING, weight=2),
    Kind("lose-answer", NETWORK),
    Kind("lose-commit-answer", NETWORK),
    Kind("lose-request", NETWORK),
    Kind("repeat-request", NETWORK, weight=1),
    Kind("refuse", NETWORK),
    Kind("delay-answers", NETWORK, (0.5, TRANSACTION_TIMEOUT_S + 5)),
    Kind("hold-commit", NETWORK, (1.0, TRANSACTION_TIMEOUT_S + 5)),
    Kind("slow-link", NETWORK, (3.0, 12.0), weight=1),
    Kind("cut-broker", NETWORK, (2.0, 20.0), weight=3),
)


@dataclass(frozen=True)
class Fault:
    """One fault to come.

    Args:
        number: from 0; with the seed it is all that the rest was drawn from.
        kind: what happens.
        gap_s: how long after the one before it begins.
        hold_s: how long it lasts.
        role: which broker it meets, by what that does at that moment.
        is_hard: a variety: of a kill, everything the driver started; of a foreign client, that it
            comes back several times.
        pick: a number in [0, 1) for a choice among what is there when it begins.
    """

    number: int
    kind: Kind
    gap_s: float
    hold_s: float
    role: str
    is_hard: bool
    pick: float


def faults(seed: int, every_s: float, kinds: Sequence[Kind]) -> Iterator[Fault]:
    """Without end. Each depends on the seed and its number alone, not on those before it.

    Args:
        seed: any number.
        every_s: the average gap.
        kinds: to draw from; not empty.
    """
    number = 0
    while True:
        dice = Random(f"{seed}/{number}")
        (kind,) = dice.choices(kinds, [kind.weight for kind in kinds])
        yield Fault(
            number,
            kind,
            gap_s=every_s * dice.uniform(1 - SPREAD, 1 + SPREAD),
            hold_s=dice.uniform(*kind.hold_s),
            role=dice.choice(ROLES),
            is_hard=dice.random() < 0.5,
            pick=dice.random(),
        )
        number += 1


def chosen(names: Sequence[str], kinds: Sequence[Kind] = KINDS) -> Sequence[Kind]:
    """The kinds of these names; all if there are none.

    Raises:
        ValueError: a name that no kind has.
    """
    known = {kind.name: kind for kind in kinds}
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ValueError(f"no such fault: {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] or list(kinds)
