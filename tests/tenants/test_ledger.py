"""Every movement sums to zero, happens once, and leaves balances that are the sums of its entries."""

from decimal import Decimal
from uuid import uuid4

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from tenants.billing.ledger.books import Entry, account_of, move
from tenants.billing.models import Account, BillingAccount, LedgerEntry, LedgerKind, LedgerTransaction
from tenants.errors import ApplicationError
from tenants.models import Tenant
from tenants.scope import platform_scope
from tests.support.story import Person

pytestmark = pytest.mark.django_db


def grant(tenant: Tenant, amount: str, reference: str = "g-1") -> LedgerTransaction:
    entries = (
        Entry(account=Account.PROMO, amount=-Decimal(amount)),
        Entry(account=Account.CREDIT, amount=Decimal(amount)),
    )
    return move(tenant_id=tenant.pk, kind=LedgerKind.GRANT, reference=reference, entries=entries)


def test_a_movement_changes_the_balance_by_its_entries(alice: Person, charlie: Person) -> None:
    grant(alice.tenant, "10.000000000001")
    grant(alice.tenant, "5", "g-2")
    assert account_of(alice.tenant).credit == Decimal("15.000000000001")
    assert account_of(charlie.tenant).credit == 0


def test_a_movement_that_does_not_sum_to_zero_is_refused(alice: Person) -> None:
    entries = (
        Entry(account=Account.PROMO, amount=Decimal(-1)),
        Entry(account=Account.CREDIT, amount=Decimal("1.000000000001")),
    )
    with pytest.raises(ValueError, match="sum to 0"):
        move(tenant_id=alice.tenant.pk, kind=LedgerKind.GRANT, reference="x", entries=entries)
    with platform_scope():
        assert not LedgerEntry.objects.exists()


def test_a_repeat_returns_the_first_and_moves_nothing(alice: Person, charlie: Person) -> None:
    first = grant(alice.tenant, "10")
    assert grant(alice.tenant, "10").pk == first.pk
    assert account_of(alice.tenant).credit == 10
    assert grant(charlie.tenant, "10").pk != first.pk  # a reference belongs to its tenant


def test_a_known_reference_with_another_amount_is_refused(alice: Person) -> None:
    grant(alice.tenant, "10")
    with pytest.raises(ApplicationError, match="other amounts"):
        grant(alice.tenant, "11")
    assert account_of(alice.tenant).credit == 10


def test_more_than_the_credit_cannot_leave_it(alice: Person) -> None:
    grant(alice.tenant, "10")
    entries = (
        Entry(account=Account.CREDIT, amount=Decimal("-10.5")),
        Entry(account=Account.HOLD, amount=Decimal("10.5"), job_id=uuid4()),
    )
    with pytest.raises(ApplicationError) as refused:
        move(tenant_id=alice.tenant.pk, kind=LedgerKind.HOLD, reference="h", entries=entries)
    assert refused.value.status == 402
    assert account_of(alice.tenant).credit == 10


def test_the_database_itself_refuses_an_overdrawn_account(alice: Person) -> None:
    grant(alice.tenant, "10")
    with platform_scope(), pytest.raises(IntegrityError), transaction.atomic():
        BillingAccount.objects.update(credit=Decimal("-0.01"))


@pytest.mark.parametrize("table", ["billing_ledgertransaction", "billing_ledgerentry"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET tenant_id = tenant_id", "DELETE FROM {}"])
def test_what_is_on_the_books_stays_there(alice: Person, table: str, statement: str) -> None:
    grant(alice.tenant, "10")
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement.format(table))
