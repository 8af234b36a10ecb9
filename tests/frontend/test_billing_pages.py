"""Invoices and balance as pages."""

import uuid
from decimal import Decimal

import pytest
from django.utils import timezone

from frontend.templatetags.billing import amount, units
from tenants.billing.invoices.corrections import Correction, credit_note_create, invoice_void
from tenants.billing.invoices.services import invoice_draft
from tenants.billing.ledger.credits import payment_record
from tests.support.factories import ProjectFactory
from tests.support.invoices import JUNE, close_may, make_billing_rows, use
from tests.support.ledger import give_credit
from tests.support.story import Person, Story, make_person

pytestmark = pytest.mark.django_db
D = Decimal


def read(person: Person, path: str) -> str:
    answer = person.browser().get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def test_an_invoice_is_a_page_to_its_tenant_and_missing_to_others(story: Story) -> None:
    invoice, _ = make_billing_rows(story.alice)
    path = f"/billing/invoices/{invoice.pk}/"
    for person in (story.alice, story.bob, story.viewer):
        assert "Invoice 2026-000001" in read(person, path)
    foreign = story.charlie.browser().get(path)
    missing = story.charlie.browser().get(f"/billing/invoices/{uuid.uuid4()}/")
    assert foreign.status_code == missing.status_code == 404
    assert foreign.content == missing.content
    assert "2026-000001" not in read(story.charlie, "/billing/invoices/")


def test_every_line_and_the_total_are_shown_as_they_are_owed(alice: Person) -> None:
    lab = ProjectFactory(tenant=alice.tenant, name="<b>Lab</b>")
    give_credit(alice.tenant, "1")
    use(alice.tenant, 100_030, project_id=lab.pk)
    use(alice.tenant, 500, billable=False, reason="step_failed", project_id=lab.pk)
    invoice = close_may(alice.tenant)
    text = read(alice, f"/billing/invoices/{invoice.pk}/")
    assert "Training samples, &lt;b&gt;Lab&lt;/b&gt;" in text
    for figure in (
        "100,030",
        "500 more were our fault and are free",
        "€5.00",
        "exactly 5.0015",
        "−€1.00",
        "€4.00",
        "To be paid",
    ):
        assert figure in text


def test_the_list_says_what_became_of_each_invoice(alice: Person) -> None:
    use(alice.tenant, 100_000)
    use(alice.tenant, 100_000, at="2026-06-10T00:00:00")
    invoice = close_may(alice.tenant)
    invoice_draft(tenant=alice.tenant, month=JUNE)
    text = read(alice, "/billing/invoices/")
    assert "Draft until 4\u00a0Jul" in text
    assert "To be paid" in text
    payment_record(by=alice.user, tenant=alice.tenant, amount=D(5), reference="bank-1", invoice=invoice)
    lines = [Correction(description="A bad day", amount=D("1.25"))]
    note = credit_note_create(by=alice.user, invoice=invoice, reason="our fault", lines=lines)
    text = read(alice, "/billing/invoices/")
    assert "Settled" in text
    assert "corrects 2026-000001" in text
    assert "takes back <b" in read(alice, f"/billing/invoices/{invoice.pk}/")
    assert "A bad day" in read(alice, f"/billing/invoices/{note.pk}/")


def test_a_void_invoice_says_that_nothing_is_to_be_paid(alice: Person) -> None:
    use(alice.tenant, 100_000)
    invoice = close_may(alice.tenant)
    invoice_void(by=alice.user, invoice=invoice, reason="wrong address")
    text = read(alice, f"/billing/invoices/{invoice.pk}/")
    assert "Nothing is to be paid for it" in text
    assert "wrong address" in text


def test_the_page_of_the_money_shows_budgets_and_what_is_left(alice: Person) -> None:
    alice.api.post("/api/v1/budgets", {"amount": "10", "hard": True})
    use(alice.tenant, 180_000, at=timezone.now().replace(tzinfo=None).isoformat())
    text = read(alice, "/billing/budgets/")
    for figure in ("jobs stop at their next checkpoint", "€9.00", "80&nbsp;% passed", "€1.00 left", "€10.00"):
        assert figure in text


def test_the_bookkeeper_sees_the_money(alice: Person) -> None:
    invoice, _ = make_billing_rows(alice)
    beth = make_person("beth", alice.tenant, "billing")
    assert f"/api/v1/invoices/{invoice.pk}/csv" in read(beth, "/billing/invoices/")


@pytest.mark.parametrize(
    ("value", "shown"), [("0", "€0.00"), ("-0.004", "€0.00"), ("-1234.565", "−€1,234.57"), ("0.005", "€0.01")]
)
def test_amounts_are_written_to_the_cent(value: str, shown: str) -> None:
    assert amount(D(value), "EUR") == shown


@pytest.mark.parametrize(
    ("quantity", "meter", "shown"),
    [
        (1_234_567, "train.samples", "1,234,567"),
        (7_200_000_000, "train.compute_us", "2.00\u00a0h"),
        (1_500_000, "env.compute_us", "1.5\u00a0s"),
        (2_500_000_000, "storage.byte_hours", "2.50\u00a0GB\u00a0h"),
    ],
)
def test_quantities_are_written_in_units_people_think_in(quantity: int, meter: str, shown: str) -> None:
    assert units(quantity, meter) == shown
