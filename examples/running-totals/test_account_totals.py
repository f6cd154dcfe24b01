"""The aggregate alone, without Spark and Kafka."""

from account_totals import AccountTotals

from onceflow.aggregates.laws import check_laws


def test_it_keeps_the_laws() -> None:
    assert check_laws(AccountTotals()) == []


def test_it_adds_up() -> None:
    totals = AccountTotals()
    acc = totals.zero()
    for cents in (500, -200, None, 100):
        acc = totals.add(acc, cents)
    assert totals.result(acc) == (600, 200, 500)
