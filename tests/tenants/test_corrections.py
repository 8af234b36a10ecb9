"""A final invoice is corrected by what comes after it: payments, credit notes, or voiding it as a whole."""

from decimal import Decimal

import pytest

from tenants.audit.models import AuditEvent
from tenants.billing.invoices.corrections import Correction, credit_note_create, invoice_void
from tenants.billing.invoices.services import invoice_finalize
from tenants.billing.ledger.books import account_of, outstanding
from tenants.billing.ledger.credits import credit_grant, mode_set, payment_record
from tenants.billing.models import Account, BillingMode, Invoice
from tenants.errors import ApplicationError
from tenants.models import User
from tenants.scope import platform_scope
from tests.support.factories import UserFactory
from tests.support.invoices import AFTER_JUNE, JUNE, close_may, shown, use
from tests.support.ledger import balance, give_credit
from tests.support.story import Person

pytestmark = pytest.mark.django_db
D = Decimal


@pytest.fixture
def olga(db: None) -> User:
    """An operator of the platform."""
    return UserFactory(email="olga@example.org", is_staff=True)


@pytest.fixture
def invoice(alice: Person) -> Invoice:
    """Five euros for May."""
    use(alice.tenant, 100_000)
    return close_may(alice.tenant)


def reread(invoice: Invoice) -> Invoice:
    with platform_scope():
        return Invoice.objects.get(pk=invoice.pk)


def pay(olga: User, invoice: Invoice, amount: str, reference: str = "bank-1") -> None:
    payment_record(by=olga, tenant=invoice.tenant, amount=D(amount), reference=reference, invoice=invoice)


def test_payments_settle_an_invoice_and_a_repeat_pays_nothing(olga: User, invoice: Invoice) -> None:
    pay(olga, invoice, "2")
    pay(olga, invoice, "2")
    assert outstanding(invoice) == 3
    assert reread(invoice).paid_at is None
    pay(olga, invoice, "3", "bank-2")
    pay(olga, invoice, "3", "bank-2")
    assert outstanding(invoice) == 0
    assert reread(invoice).paid_at is not None
    with platform_scope():
        assert AuditEvent.objects.filter(verb="payment.recorded").count() == 2


def test_more_than_an_invoice_asks_for_is_refused(olga: User, invoice: Invoice) -> None:
    with pytest.raises(ApplicationError) as refused:
        pay(olga, invoice, "5.01")
    assert refused.value.errors[0].code == "more_than_owed"
    assert outstanding(invoice) == 5


def test_nobody_pays_anothers_invoice(olga: User, invoice: Invoice, charlie: Person) -> None:
    with pytest.raises(ApplicationError, match="not valid at /invoice"):
        payment_record(by=olga, tenant=charlie.tenant, amount=D(1), reference="b", invoice=invoice)


def test_a_payment_without_an_invoice_is_credit(olga: User, alice: Person) -> None:
    payment_record(by=olga, tenant=alice.tenant, amount=D(20), reference="bank-1")
    assert account_of(alice.tenant).credit == 20
    assert balance(alice.tenant, Account.CASH) == -20


def test_a_grant_needs_a_reason_and_counts_once(olga: User, alice: Person) -> None:
    with pytest.raises(ApplicationError, match="not valid at /reason"):
        credit_grant(by=olga, tenant=alice.tenant, amount=D(20), reason=" ", reference="g-1")
    for _ in range(2):
        credit_grant(by=olga, tenant=alice.tenant, amount=D(20), reason="sorry", reference="g-1")
    assert account_of(alice.tenant).credit == 20
    with platform_scope():
        act = AuditEvent.objects.get(verb="credit.granted")
    assert (act.actor_name, act.reason) == ("olga@example.org", "sorry")


@pytest.mark.parametrize("amount", ["0", "-1", "0.001", "1000000.01", "NaN", "Infinity"])
def test_an_amount_nobody_can_pay_is_refused(olga: User, alice: Person, amount: str) -> None:
    with pytest.raises(ApplicationError, match="not valid at /amount"):
        credit_grant(by=olga, tenant=alice.tenant, amount=D(amount), reason="x", reference="g-1")


def test_the_mode_is_changed_once_and_written_down(olga: User, alice: Person) -> None:
    mode_set(by=olga, tenant=alice.tenant, mode="prepaid")
    mode_set(by=olga, tenant=alice.tenant, mode="prepaid")
    assert account_of(alice.tenant).mode == BillingMode.PREPAID
    with platform_scope():
        assert AuditEvent.objects.filter(verb="billing_mode.changed").count() == 1
    with pytest.raises(ApplicationError, match="not valid at /mode"):
        mode_set(by=olga, tenant=alice.tenant, mode="free")


def test_a_credit_note_lowers_what_is_owed(olga: User, invoice: Invoice) -> None:
    note = credit_note_create(
        by=olga, invoice=invoice, reason="our fault", lines=[Correction(description="A bad day", amount=D("1.50"))]
    )
    assert (note.number, note.total, shown(note)) == ("2026-000002", D("-1.50"), [("A bad day", D("-1.50"))])
    assert outstanding(invoice) == D("3.50")
    assert balance(invoice.tenant, Account.REVENUE) == D("3.50")
    assert reread(invoice).total == 5  # the invoice itself stays


def test_what_was_paid_comes_back_as_credit(olga: User, invoice: Invoice) -> None:
    pay(olga, invoice, "4")
    credit_note_create(by=olga, invoice=invoice, reason="all of it")
    assert outstanding(invoice) == 0
    assert account_of(invoice.tenant).credit == 4
    assert reread(invoice).paid_at is not None


def test_a_credit_note_over_a_partly_paid_invoice_first_lowers_what_is_owed(olga: User, invoice: Invoice) -> None:
    pay(olga, invoice, "2")
    lines = [Correction(description="A bad day", amount=D(4))]
    credit_note_create(by=olga, invoice=invoice, reason="our fault", lines=lines)
    assert (outstanding(invoice), account_of(invoice.tenant).credit) == (0, 1)
    assert reread(invoice).paid_at is not None
    credit_note_create(by=olga, invoice=invoice, reason="the rest of it")
    assert (outstanding(invoice), account_of(invoice.tenant).credit) == (0, 2)
    with pytest.raises(ApplicationError, match="not valid at /amount"):
        pay(olga, invoice, "0.01", "bank-2")


def test_never_more_comes_back_than_is_left_of_the_invoice(olga: User, invoice: Invoice) -> None:
    for amount in ("3", "1.99"):
        credit_note_create(by=olga, invoice=invoice, reason="x", lines=[Correction(description="x", amount=D(amount))])
    with pytest.raises(ApplicationError) as refused:
        credit_note_create(by=olga, invoice=invoice, reason="x", lines=[Correction(description="x", amount=D("0.02"))])
    assert refused.value.errors[0].code == "more_than_left"
    assert credit_note_create(by=olga, invoice=invoice, reason="the rest").total == D("-0.01")
    with pytest.raises(ApplicationError):
        credit_note_create(by=olga, invoice=invoice, reason="nothing is left")


@pytest.mark.parametrize("amount", ["0", "-1", "0.001"])
def test_a_line_of_a_credit_note_takes_back_whole_cents(olga: User, invoice: Invoice, amount: str) -> None:
    with pytest.raises(ApplicationError, match="lines/0/amount"):
        credit_note_create(by=olga, invoice=invoice, reason="x", lines=[Correction(description="x", amount=D(amount))])


def test_a_void_invoice_owes_nothing_and_its_usage_can_be_billed_anew(olga: User, alice: Person) -> None:
    use(alice.tenant, 100_000)
    give_credit(alice.tenant, "1")
    first = close_may(alice.tenant)
    assert first.total == 4
    invoice_void(by=olga, invoice=first, reason="wrong address")
    assert outstanding(first) == 0
    assert balance(alice.tenant, Account.UNBILLED) == -5
    assert account_of(alice.tenant).credit == 1
    second = close_may(alice.tenant)
    assert (reread(first).state, reread(first).number) == ("void", "2026-000001")
    assert (second.number, second.total) == ("2026-000002", D(4))


def test_a_void_month_is_billed_anew_without_what_came_late_meanwhile(olga: User, invoice: Invoice) -> None:
    """It was closed when that came, and stays so: no usage is on two invoices, none on neither."""
    invoice_void(by=olga, invoice=invoice, reason="wrong address")
    use(invoice.tenant, 20_000)
    assert close_may(invoice.tenant).total == 5
    june = invoice_finalize(by=None, tenant=invoice.tenant, month=JUNE, now=AFTER_JUNE)
    assert june is not None
    assert shown(june) == [("Training samples (late usage of 2026-05)", D(1))]
    assert balance(invoice.tenant, Account.RECEIVABLE) == -6


def test_an_invoice_that_was_paid_or_corrected_cannot_be_voided(olga: User, invoice: Invoice) -> None:
    pay(olga, invoice, "1")
    with pytest.raises(ApplicationError) as refused:
        invoice_void(by=olga, invoice=invoice, reason="x")
    assert refused.value.status == 409


def test_a_draft_a_void_invoice_and_a_credit_note_cannot_be_corrected(olga: User, invoice: Invoice) -> None:
    note = credit_note_create(by=olga, invoice=invoice, reason="x", lines=[Correction(description="x", amount=D(1))])
    for act in (invoice_void, credit_note_create):
        with pytest.raises(ApplicationError) as refused:
            act(by=olga, invoice=note, reason="x")
        assert refused.value.status == 409
