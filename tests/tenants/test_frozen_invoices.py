"""The database itself keeps final invoices as they are; drafts follow the usage."""

import pytest
from django.db import DatabaseError, connection, transaction

from tenants.billing.invoices.corrections import credit_note_create, invoice_void
from tenants.billing.invoices.services import invoice_draft
from tenants.billing.ledger.credits import payment_record
from tenants.billing.models import Invoice
from tests.support.invoices import JUNE, close_may, lines_of, use
from tests.support.story import Person

pytestmark = pytest.mark.django_db

CHANGES = [
    "UPDATE billing_invoice SET total = total - 1 WHERE state <> 'draft'",
    "UPDATE billing_invoice SET number = 'other' WHERE state <> 'draft'",
    "UPDATE billing_invoice SET number = NULL WHERE state <> 'draft'",
    "UPDATE billing_invoice SET state = 'draft' WHERE state <> 'draft'",
    "UPDATE billing_invoice SET period_start = '2026-01-01' WHERE state <> 'draft'",
    "DELETE FROM billing_invoice WHERE state <> 'draft'",
    "UPDATE billing_invoiceline SET amount = amount - 1",
    "UPDATE billing_invoiceline SET description = 'nothing'",
    "DELETE FROM billing_invoiceline",
]


@pytest.fixture
def invoice(alice: Person) -> Invoice:
    use(alice.tenant, 100_000)
    return close_may(alice.tenant)


@pytest.mark.parametrize("statement", CHANGES)
@pytest.mark.parametrize("void", [False, True], ids=["final", "void"])
def test_a_final_or_void_invoice_cannot_be_changed(
    alice: Person, invoice: Invoice, statement: str, void: bool
) -> None:
    if void:
        invoice_void(by=alice.user, invoice=invoice, reason="wrong address")
    refused = pytest.raises(DatabaseError, match="a final invoice is never changed")
    with refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def test_a_credit_note_cannot_be_changed(alice: Person, invoice: Invoice) -> None:
    credit_note_create(by=alice.user, invoice=invoice, reason="our fault")
    refused = pytest.raises(DatabaseError, match="a final invoice is never changed")
    with refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE billing_invoice SET total = 0 WHERE kind = 'credit_note'")


def test_what_becomes_of_it_is_written_beside_it(alice: Person, invoice: Invoice) -> None:
    payment_record(by=alice.user, tenant=alice.tenant, amount=invoice.total, reference="bank-1", invoice=invoice)


def test_a_draft_is_worked_out_anew_as_often_as_there_is_usage(alice: Person) -> None:
    for count in (1, 2, 3):
        use(alice.tenant, 100_000, at="2026-06-10T00:00:00")
        draft = invoice_draft(tenant=alice.tenant, month=JUNE)
        assert draft is not None
        assert (draft.total, len(lines_of(draft))) == (5 * count, 1)
