"""The invoice's screen of the operators' admin: drafts, final ones, and their corrections."""

import csv
import io
from decimal import Decimal
from typing import Any

from django.test import Client

from tenants.audit.models import AuditEvent
from tenants.billing.models import Invoice, InvoiceKind, InvoiceState
from tenants.scope import platform_scope
from tests.support.invoices import close_may, use
from tests.support.story import Person, Story


def screen_of(invoice: Invoice) -> str:
    return f"/admin/invoice/{invoice.pk}/"


def send(browser: Client, invoice: Invoice, act: str, **fields: Any) -> Any:
    return browser.post(screen_of(invoice), {"act": act, **{f"{act}-{name}": value for name, value in fields.items()}})


def reread(invoice: Invoice) -> Invoice:
    with platform_scope():
        return Invoice.objects.get(pk=invoice.pk)


def drafted(operator: Client, alice: Person) -> Invoice:
    """May of Alice's lab, drafted on her tenant's screen."""
    operator.post(f"/admin/tenant/{alice.tenant.pk}/", {"act": "draft", "draft-month": "2026-05"})
    with platform_scope():
        return Invoice.objects.get(tenant=alice.tenant)


def verbs() -> list[str]:
    with platform_scope():
        return list(AuditEvent.objects.filter(actor_kind="operator").order_by("pk").values_list("verb", flat=True))


def test_the_screen_shows_each_line_and_what_is_still_asked_for(operator: Client, alice: Person):
    use(alice.tenant, 100_000)
    invoice = close_may(alice.tenant)
    page = operator.get(screen_of(invoice)).content.decode()
    for shown in (invoice.number, "100,000", "5.00 EUR", "May 2026", "Alice&#x27;s lab", "Still asked for"):
        assert str(shown) in page
    listed = operator.get("/admin/billing/invoice/", {"tenant_slug": alice.tenant.slug}).content.decode()
    assert screen_of(invoice) in listed


def test_a_draft_follows_its_month_until_it_is_made_final_for_sure(operator: Client, alice: Person):
    use(alice.tenant, 100_000)
    draft = drafted(operator, alice)
    use(alice.tenant, 100_000, at="2026-05-11T12:00:00")
    assert send(operator, draft, "redraft").status_code == 302
    assert reread(draft).total == Decimal(10)
    assert send(operator, draft, "finalize").status_code == 200  # not sure
    assert reread(draft).state == InvoiceState.DRAFT
    assert send(operator, draft, "finalize", sure="on").status_code == 302
    assert reread(draft).state == InvoiceState.FINAL
    assert verbs() == ["invoice.finalized"]


def test_a_month_whose_grace_is_not_over_is_not_closed(operator: Client, alice: Person):
    use(alice.tenant, 100_000)
    draft = drafted(operator, alice)
    with platform_scope():
        Invoice.objects.filter(pk=draft.pk).update(period_start="2126-05-01", period_end="2126-06-01")
    answer = send(operator, draft, "finalize", sure="on")
    assert "late usage is awaited" in answer.content.decode()
    assert reread(draft).state == InvoiceState.DRAFT


def test_an_empty_draft_goes_and_leads_back_to_the_list(operator: Client, alice: Person):
    use(alice.tenant, 100_000)
    draft = drafted(operator, alice)
    with platform_scope():
        Invoice.objects.filter(pk=draft.pk).update(period_start="2026-04-01", period_end="2026-05-01")
    assert send(operator, draft, "redraft")["Location"] == "/admin/billing/invoice/"


def test_voiding_needs_a_reason_and_is_written_down(operator: Client, alice: Person):
    use(alice.tenant, 100_000)
    invoice = close_may(alice.tenant)
    assert send(operator, invoice, "void", reason="").status_code == 200
    assert send(operator, invoice, "void", reason="wrong address").status_code == 302
    assert (reread(invoice).state, reread(invoice).reason) == (InvoiceState.VOID, "wrong address")
    assert verbs() == ["invoice.voided"]


def test_a_credit_note_takes_back_a_part_and_never_more_than_is_left(operator: Client, alice: Person):
    use(alice.tenant, 100_000)
    invoice = close_may(alice.tenant)
    part = {"reason": "an outage", "amount": "2.00", "description": "Outage of 3 May"}
    assert send(operator, invoice, "note", **part).status_code == 302
    with platform_scope():
        note = Invoice.objects.get(kind=InvoiceKind.CREDIT_NOTE)
    assert (note.total, note.corrects_id) == (Decimal("-2.00"), invoice.pk)
    assert "3.00 EUR" in operator.get(screen_of(invoice)).content.decode()
    too_much = send(operator, invoice, "note", **(part | {"amount": "3.01"}))
    assert "is left of the invoice" in too_much.content.decode()
    half_said = send(operator, invoice, "note", reason="x", amount="1")
    assert "come together" in half_said.content.decode()
    assert verbs() == ["credit_note.created"]


def test_an_invoice_leaves_as_csv(operator: Client, alice: Person):
    use(alice.tenant, 100_000)
    invoice = close_may(alice.tenant)
    answer = operator.get(f"{screen_of(invoice)}csv")
    titles, row = list(csv.reader(io.StringIO(b"".join(answer).decode())))
    assert dict(zip(titles, row, strict=True))["number"] == invoice.number


def test_who_may_only_look_changes_no_invoice_and_members_see_none(onlooker: Client, story: Story):
    use(story.alice.tenant, 100_000)
    invoice = close_may(story.alice.tenant)
    assert onlooker.get(screen_of(invoice)).status_code == 200
    assert send(onlooker, invoice, "void", reason="x").status_code == 403
    for browser in (Client(), story.alice.browser()):
        assert browser.get(screen_of(invoice)).status_code in {302, 403}
        assert browser.get(f"{screen_of(invoice)}csv").status_code in {302, 403}
        assert send(browser, invoice, "void", reason="x").status_code in {302, 403}
    assert reread(invoice).state == InvoiceState.FINAL


def test_a_final_invoice_offers_no_draft_and_a_draft_no_correction(operator: Client, alice: Person):
    use(alice.tenant, 100_000)
    draft = drafted(operator, alice)
    page = operator.get(screen_of(draft)).content.decode()
    assert 'value="finalize"' in page
    assert 'value="void"' not in page
    assert send(operator, draft, "void", reason="x").status_code == 200
