"""Which state of a query goes on as which of a changed one. Pure.

The operators of both are known by their names in `onceflow state list`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from onceflow.errors import ConfigError, Fault, unknown_name
from onceflow.runtime.state.layout import Operator

NOTHING = "nothing was written"


@dataclass(frozen=True)
class Carry:
    """The state of one operator goes on as that of another.

    Args:
        old: name of the operator that has it; empty for the only one.
        new: name of the one that gets it; empty for the only one.
        function: `module:function` that makes its rows; empty: they stay as they are.
    """

    old: str = ""
    new: str = ""
    function: str = ""

    @classmethod
    def changed(cls, text: str) -> Carry:
        """Read `[OLD[:NEW]=]MODULE:FUNCTION`.

        Raises:
            ConfigError: it is something else.
        """
        names, equals, function = text.rpartition("=")
        module, colon, name = function.partition(":")
        old, again, new = names.partition(":")
        if not (module and colon and name) or (equals and not old) or (again and not new):
            expected = "`module:function`, `operator=module:function` or `old:new=module:function`"
            raise _unread("--with", text, expected)
        return cls(old, new or old, function)

    @classmethod
    def moved(cls, text: str) -> Carry:
        """Read `OLD:NEW`.

        Raises:
            ConfigError: it is something else.
        """
        old, _, new = text.partition(":")
        if not (old and new):
            raise _unread("--move", text, "`old:new`, names as `onceflow state list` shows them")
        return cls(old, new)


@dataclass(frozen=True)
class Transfer:
    """The operators whose state does not just go on under its own name, as the user lists them.

    Args:
        carried: whose rows are changed, or have another name in the new query.
        dropped: names of operators whose state is given up.
        begun: names of operators of the new query that begin without state.
    """

    carried: Sequence[Carry] = ()
    dropped: Sequence[str] = ()
    begun: Sequence[str] = ()

    def __bool__(self) -> bool:
        """Whether it changes anything."""
        return bool(self.carried or self.dropped or self.begun)

    def __str__(self) -> str:
        changed = [each.function for each in self.carried if each.function]
        moved = [f"{each.old} is {each.new}" for each in self.carried if not each.function]
        parts = {
            "state changed by": changed,
            "state moved:": moved,
            "state dropped:": self.dropped,
            "state begun:": self.begun,
        }
        return ", ".join(f"{what} {' and '.join(each)}" for what, each in parts.items() if each)

    def sources(
        self, before: Sequence[Operator], after: Sequence[Operator]
    ) -> Mapping[str, tuple[Operator | None, str]]:
        """For each operator of the new query the one whose state it gets, and the function.

        Raises:
            ConfigError: an operator would lose its state or begin without any, and no option says
                so; or a name is unknown. Lists all of that.
        """
        olds, news = ({each.name: each for each in side} for side in (before, after))
        faults = [*self._unknown(olds, news)]
        found: dict[str, tuple[Operator | None, str]] = {}
        for each in self.carried:
            old, new = (
                name or (next(iter(side)) if len(side) == 1 else "")
                for name, side in ((each.old, olds), (each.new, news))
            )
            if not (old and new):
                expected = (
                    f"one of {_named(olds)}, and of {_named(news)}: `old:new={each.function}`"
                )
                faults.append(Fault(f"{each.function} is for no operator", expected=expected))
            elif new in found:
                faults.append(Fault(f"{new} gets state twice", expected="one `--with` or `--move`"))
            elif old in olds and new in news:
                found[new] = olds[old], each.function
        found |= {name: (None, "") for name in self.begun if name in news and name not in found}
        for name in news.keys() - found.keys():
            if name in olds and olds[name].kind == news[name].kind and name not in self.dropped:
                found[name] = olds[name], ""
        used = {old.name for old, _ in found.values() if old}
        left = [name for name in olds if name not in used and name not in self.dropped]
        faults += [
            Fault(
                f"{name} has state that nothing goes on with",
                expected=f"`--drop {name}`, or a `--with` or `--move` to one of {_named(news)}",
            )
            for name in left
        ]
        faults += [
            Fault(
                f"{name} is new, and has no state",
                expected=f"`--begin {name}`, or a `--with` or `--move` from one of {_named(olds)}",
            )
            for name in news
            if name not in found
        ]
        if faults:
            raise ConfigError(
                "it is not said what becomes of the state", faults=tuple(faults), then=NOTHING
            )
        return found

    def _unknown(
        self, olds: Mapping[str, Operator], news: Mapping[str, Operator]
    ) -> Iterator[Fault]:
        wanted = [(each.old, olds, "had no state") for each in self.carried if each.old]
        wanted += [(each.new, news, "keeps no state") for each in self.carried if each.new]
        wanted += [(name, olds, "had no state") for name in self.dropped]
        wanted += [(name, news, "keeps no state") for name in self.begun]
        for name, known, what in wanted:
            if name not in known:
                side = "before" if known is olds else "now"
                yield unknown_name(f"{side}, the query {what} called", name, [*known])


def _named(operators: Mapping[str, Operator]) -> str:
    return ", ".join(operators) or "none"


def _unread(option: str, text: str, expected: str) -> ConfigError:
    return ConfigError(
        "an option cannot be read", subject=option, expected=expected, found=text, then=NOTHING
    )
