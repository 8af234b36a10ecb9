"""Ingest with real threads: every event counts once, tiers are counted through, and nobody waits in a circle."""

import random
from collections.abc import Sequence
from datetime import date

import pytest
from django.db.models import Sum

from tenants.billing.invoices.services import invoice_finalize
from tenants.billing.ledger.books import account_of
from tenants.billing.models import Account, LedgerEntry, MeterTotal, RatedUsage, UsageEvent, UsageRollup
from tenants.billing.prices.pricing import charge
from tenants.billing.prices.tariffs import price_of
from tenants.billing.usage.batches import Ingested, MeteredWork
from tenants.models import Tenant
from tenants.scope import platform_scope
from tests.support.factories import TenantFactory, moment
from tests.support.invoices import AFTER_MAY, MAY
from tests.support.threads import all_at_once
from tests.support.usage import graduated, set_price, tell, work

pytestmark = pytest.mark.django_db(transaction=True)

START = moment("2026-05-01T00:00:00")


def batches_of(tenants: Sequence[Tenant], count: int, size: int) -> list[list[MeteredWork]]:
    """Works of all tenants over two months, in an order of its own in every batch."""
    dice = random.Random(11)
    batches = []
    for number in range(count):
        works = [
            work(
                dice.choice(tenants),
                samples=dice.randrange(1, 90),
                event_id=f"{number}-{index}",
                occurred_at=moment(f"2026-0{dice.choice([5, 6])}-10T00:00:00"),
            )
            for index in range(size)
        ]
        batches.append(works)
    return batches


def refuse_errors(outcomes: Sequence[Ingested | Exception]) -> list[Ingested]:
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return [outcome for outcome in outcomes if isinstance(outcome, Ingested)]


def test_relays_that_tell_the_same_at_once_are_heard_once() -> None:
    tenants = [TenantFactory() for _ in range(4)]
    (works,) = batches_of(tenants, 1, 60)
    outcomes = refuse_errors(all_at_once(lambda _: tell(*works), count=6))
    assert sorted(bool(outcome.charged) for outcome in outcomes) == [False] * 5 + [True]
    with platform_scope():
        assert UsageEvent.objects.count() == RatedUsage.objects.count() == 60
        assert UsageRollup.objects.aggregate(n=Sum("quantity"))["n"] == sum(one.lines[0].quantity for one in works)


def test_batches_of_the_same_tenants_at_once_count_tiers_through_and_never_deadlock() -> None:
    version = set_price("train.samples", "0.5", per=100, valid_from=START, **graduated((1_000, "0.5"), (None, "0.1")))
    tenants = [TenantFactory() for _ in range(5)]
    batches = batches_of(tenants, 8, 50)
    refuse_errors(all_at_once(lambda number: tell(*batches[number]), count=8))
    with platform_scope():
        assert UsageEvent.objects.count() == 8 * 50
        totals = list(MeterTotal.objects.all())
        for total in totals:
            rows = UsageRollup.objects.filter(
                tenant_id=total.tenant_id, day__gte=total.month, day__lte=total.month.replace(day=28)
            )
            sums = rows.aggregate(units=Sum("quantity"), money=Sum("amount"))
            assert sums == {"units": total.quantity, "money": charge(price_of(version), total.quantity)}
    assert {(total.tenant_id, total.month.month) for total in totals} == {
        (tenant.pk, month) for tenant in tenants for month in (5, 6)
    }


def test_closing_while_batches_come_splits_them_at_one_moment() -> None:
    tenants = [TenantFactory() for _ in range(3)]
    batches = batches_of(tenants, 6, 40)
    tell(*(work(tenant, samples=1) for tenant in tenants))

    def act(number: int) -> Ingested:
        if number < 6:
            return tell(*batches[number])
        for tenant in tenants if number == 6 else reversed(tenants):
            invoice_finalize(by=None, tenant=tenant, month=MAY, now=AFTER_MAY)
        return Ingested()

    refuse_errors(all_at_once(act, count=8))
    with platform_scope():
        assert UsageEvent.objects.count() == 3 + 6 * 40
        for tenant in tenants:
            on_invoice = UsageRollup.objects.filter(tenant=tenant, period=MAY).aggregate(n=Sum("amount"))["n"]
            late = UsageRollup.objects.filter(tenant=tenant, day__lt=date(2026, 6, 1)).exclude(period=MAY)
            assert all(row.period > MAY for row in late)
            rated = RatedUsage.objects.filter(tenant=tenant, period=MAY).aggregate(n=Sum("amount"))["n"]
            revenue = LedgerEntry.objects.filter(tenant=tenant, account=Account.REVENUE)
            assert on_invoice == rated
            assert revenue.aggregate(n=Sum("amount"))["n"] == sum(
                row.amount for row in UsageRollup.objects.filter(tenant=tenant)
            )
            assert account_of(tenant).held == 0
