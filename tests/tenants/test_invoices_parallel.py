"""Closing a month with real threads: one invoice, and no event lost or counted twice at the border."""

import datetime as dt
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import repeat
from threading import Barrier
from typing import TypeVar

import pytest
from django.db import connection
from django.db.models import Sum

from tenants.billing.invoices.corrections import Correction, credit_note_create
from tenants.billing.invoices.services import invoice_draft, invoice_finalize
from tenants.billing.ledger.books import outstanding
from tenants.billing.models import (
    Account,
    Invoice,
    InvoiceSequence,
    InvoiceState,
    LedgerKind,
    LedgerTransaction,
    UsageEvent,
    UsageRollup,
)
from tenants.errors import ApplicationError
from tenants.scope import platform_scope
from tests.support.factories import TenantFactory, UserFactory
from tests.support.invoices import AFTER_JUNE, AFTER_MAY, MAY, close_may, lines_of, use
from tests.support.ledger import balance
from tests.support.story import Person

pytestmark = pytest.mark.django_db(transaction=True)
T = TypeVar("T")


def at_once(acts: list[Callable[[], T]]) -> list[T]:
    """Run every act in a thread of its own, all released together."""
    barrier = Barrier(len(acts))

    def run(act: Callable[[], T]) -> T:
        barrier.wait(timeout=30)
        try:
            return act()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def test_eight_that_close_a_month_at_once_make_one_invoice(alice: Person) -> None:
    use(alice.tenant, 100_000)
    made = at_once([lambda: close_may(alice.tenant)] * 8)
    assert len({invoice.pk for invoice in made}) == 1
    with platform_scope():
        assert Invoice.objects.count() == 1
        assert LedgerTransaction.objects.filter(kind=LedgerKind.INVOICE).count() == 1
        assert InvoiceSequence.objects.get().last == 1
    assert outstanding(made[0]) == 5


def test_drafting_and_closing_at_once_make_one_invoice(alice: Person) -> None:
    use(alice.tenant, 100_000)
    draft = lambda: invoice_draft(tenant=alice.tenant, month=MAY)  # noqa: E731
    at_once([draft, lambda: close_may(alice.tenant)] * 4)
    with platform_scope():
        invoice = Invoice.objects.get()
    assert (invoice.state, invoice.total) == (InvoiceState.FINAL, 5)
    assert len(lines_of(invoice)) == 1


def test_many_tenants_closing_at_once_leave_no_gap_in_the_numbers(db: None) -> None:
    tenants = [TenantFactory() for _ in range(8)]
    for tenant in tenants:
        use(tenant, 100_000)
    made = at_once([lambda own=tenant: close_may(own) for tenant in tenants])  # type: ignore[misc]
    assert sorted(invoice.number or "" for invoice in made) == [f"2026-{n:06d}" for n in range(1, 9)]


def test_usage_that_races_with_the_closing_is_on_one_invoice_or_the_next(alice: Person) -> None:
    use(alice.tenant, 1_000)
    use(alice.tenant, 1_000, at="2026-06-01T00:00:00")  # June is open

    def tell() -> None:
        for _ in repeat(None, 12):
            use(alice.tenant, 1_000)

    closing = lambda: close_may(alice.tenant)  # noqa: E731
    at_once([tell, tell, closing, tell, closing, tell])  # type: ignore[list-item]
    may = close_may(alice.tenant)
    june = invoice_finalize(by=None, tenant=alice.tenant, month=dt.date(2026, 6, 1), now=AFTER_JUNE)
    assert june is not None
    with platform_scope():
        assert UsageEvent.objects.count() == 50
        assert UsageRollup.objects.aggregate(total=Sum("quantity"))["total"] == 50_000
    assert sum(line.quantity for line in [*lines_of(may), *lines_of(june)]) == 50_000
    assert may.total + june.total == Decimal("2.50")
    assert balance(alice.tenant, Account.UNBILLED) == 0


def test_credit_notes_at_once_never_take_back_more_than_the_invoice(alice: Person) -> None:
    use(alice.tenant, 100_000)
    invoice, olga = close_may(alice.tenant), UserFactory(is_staff=True)

    def attempt() -> bool:
        lines = [Correction(description="x", amount=Decimal(2))]
        try:
            credit_note_create(by=olga, invoice=invoice, reason="x", lines=lines)
            return True
        except ApplicationError:
            return False

    assert sum(at_once([attempt] * 8)) == 2
    assert outstanding(invoice) == 1


def test_a_closing_that_fails_takes_no_number_and_closes_nothing(
    alice: Person, charlie: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(alice.tenant, 100_000)
    use(charlie.tenant, 100_000)
    with monkeypatch.context() as patch:
        patch.setattr("tenants.billing.invoices.services.audit", _broken)
        with pytest.raises(RuntimeError, match="power cut"):
            close_may(alice.tenant)
    with platform_scope():
        assert not Invoice.objects.exists()
    assert close_may(charlie.tenant).number == "2026-000001"
    assert invoice_finalize(by=None, tenant=alice.tenant, month=MAY, now=AFTER_MAY) is not None


def _broken(**_: object) -> None:
    raise RuntimeError("power cut")
